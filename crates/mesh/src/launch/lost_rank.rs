//! The rank that ended first, from the lines of the ranks and of the launcher.

use std::path::Path;
use std::process::ExitStatus;

use panoply_tensor::Error;

use super::{ENDED, PROCESS, RANK};

/// The rank that ended first, parsed from its message or from those of the launcher, some of which can be missing.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Lost {
    pub rank: Option<usize>,
    how: Option<String>,
    /// Rank that the launcher of MPICH or Intel MPI names; it can have been ended by the launcher.
    named: Option<usize>,
    /// Process id that they name.
    pub process: Option<u32>,
    /// Announced ranks with their process ids.
    pub announced: Vec<(usize, u32)>,
    /// True if the next line tells how the rank ended.
    is_split: bool,
    /// True after the first line of the message of MPICH's launcher. Before it, similar lines are the output of ranks.
    has_banner: bool,
}

/// The origin of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A rank announces its process id, from this byte on: the line of another rank can lack its end so far.
    Announcement(usize),
    /// A rank ended by a signal or with an error code, reported from this byte on.
    Report(usize),
    /// A rank reports an error.
    Failure,
    /// MPICH's launcher reports a lost process.
    Launcher,
    /// A rule that starts the report of MPICH's launcher, or that a rank writes.
    Rule,
    Other,
}

impl Lost {
    /// Parses a line of a rank or of the launcher.
    pub fn read(&mut self, line: &str) -> Line {
        let behind = |mark: &str| line.split_once(mark).map(|(_, rest)| rest);
        if let Some(start) = line.rfind(RANK) {
            let message = &line[start + RANK.len()..];
            if let Some((rank, process)) = message.split_once(PROCESS)
                && let (Ok(rank), Ok(process)) = (rank.parse(), process.parse())
            {
                self.announced.push((rank, process));
                return Line::Announcement(start);
            }
            if let Some((rank, how)) = message.split_once(ENDED)
                && let Ok(rank) = rank.parse()
            {
                return self.read_report(start, rank, how);
            }
        }
        if std::mem::take(&mut self.is_split) {
            self.how = self.how.take().or(Some(line.trim_end_matches('.').to_string()));
        } else if let Some((rank, rest)) = line.strip_prefix(RANK).and_then(|rest| rest.split_once(": "))
            && let (Ok(rank), false) = (rank.parse(), rest.is_empty())
        {
            self.rank = self.rank.or(Some(rank));
            return Line::Failure;
        } else if let Some(rest) = behind("process rank ").filter(|_| line.contains(" noticed that ")) {
            self.rank = self.rank.or(number(rest));
            // Open MPI 5 wraps the line.
            match rest.split_once("exited on") {
                Some((_, "")) => self.is_split = true,
                Some((_, how)) => self.how = self.how.take().or(Some(how.trim().trim_end_matches('.').to_string())),
                None => {}
            }
        } else if let Some(rest) = behind("MPI_ABORT was invoked on rank ") {
            self.rank = self.rank.or(number(rest));
        } else if let Some(rest) = behind(" (rank ").filter(|_| line.starts_with("Abort(")) {
            self.rank = self.rank.or(number(rest));
        } else if let Some(name) = behind("Process name: [") {
            self.rank = self.rank.or(name.rsplit_once(',').and_then(|(_, rank)| number(rank)));
        } else if let Some(code) = behind("Exit code:") {
            self.how = self.how.take().or(Some(format!("exit code {}", code.trim())));
        } else {
            return self.read_hydra(line);
        }
        Line::Other
    }

    /// Reads how a rank failed.
    fn read_report(&mut self, start: usize, rank: usize, how: &str) -> Line {
        if self.rank.is_none_or(|known| known == rank) {
            self.rank = Some(rank);
            self.how = self.how.take().or(Some(how.to_string()));
        }
        Line::Report(start)
    }

    /// Parses a line of the launcher of MPICH or Intel MPI, of which only the latter tells the rank.
    fn read_hydra(&mut self, line: &str) -> Line {
        let is_rule = line.len() > 80 && line.bytes().all(|byte| byte == b'=');
        self.has_banner |= line.starts_with("=   BAD TERMINATION");
        if !self.has_banner {
            return if is_rule { Line::Rule } else { Line::Other };
        }
        if let Some(rest) = line.strip_prefix("=   ") {
            let behind = |mark: &str| rest.split_once(mark).map(|(_, rest)| rest);
            if rest.contains(" RUNNING AT ") {
                self.named = self.named.or(rest.strip_prefix("RANK ").and_then(number));
                self.process = self.process.or(behind("PID ").and_then(number));
            } else if let Some(signal) = behind("KILLED BY SIGNAL: ") {
                self.how = self.how.take().or(Some(format!("signal {signal}")));
            }
            return Line::Launcher;
        }
        if let Some(end) = line.strip_prefix("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: ") {
            // `Killed (signal 9)`
            let how = end.split_once(" (signal ").map(|(name, signal)| (name, signal.trim_end_matches(')')));
            let how = how.map(|(name, signal)| format!("signal {signal} ({name})"));
            self.how = self.how.take().or(how);
            return Line::Launcher;
        }
        let is_advice = line.starts_with("This typically refers to a problem with your application")
            || line.starts_with("Please see the FAQ page for debugging suggestions");
        if is_rule || is_advice { Line::Launcher } else { Line::Other }
    }

    /// Returns the error of a launcher that ended without success.
    pub fn error(&self, status: ExitStatus, ranks: usize, launcher: &Path) -> Error {
        let mut of_process = self.announced.iter().filter(|(_, process)| Some(*process) == self.process);
        // Processes of different hosts can have the same id.
        let announced = of_process.next().filter(|_| of_process.next().is_none()).map(|(rank, _)| *rank);
        let how = self.how.as_ref().map_or(String::new(), |how| format!(" by {how}"));
        let message = match (self.rank, self.named.or(announced), self.process) {
            (Some(rank), _, _) => format!("rank {rank} of {ranks} ended{how}; all other ranks were stopped"),
            (None, Some(rank), _) => {
                format!("one of {ranks} ranks ended{how}, the launcher names rank {rank}; all others were stopped")
            }
            (None, None, Some(process)) => {
                format!("one of {ranks} ranks (process {process}) ended{how}; all others were stopped")
            }
            (None, None, None) => return Error::unavailable(format!("{} ended with {status}", launcher.display())),
        };
        Error::unavailable(message).note("its error message, if any, is above")
    }
}

/// Returns the number at the start of a text.
fn number<N: std::str::FromStr>(text: &str) -> Option<N> {
    text.split(|c: char| !c.is_ascii_digit()).next().and_then(|digits| digits.parse().ok())
}
