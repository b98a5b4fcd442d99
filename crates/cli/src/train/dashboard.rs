//! `--tui`: a full-screen dashboard of loss curves, speed and memory during training.
//!
//! It is drawn on stderr; stdout holds only the results. [`draw`] renders a [`State`] and has no other effect. A thread draws ten times
//! a second and reads keys, regardless of the duration of a step. [`Dashboard`] passes the progress to this thread and restores the
//! terminal when it is dropped.

use std::cell::Cell;
use std::io::{IsTerminal, Stderr, stderr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use panoply::nn::trainer::StepReport;
use panoply::nn::{EpochReport, Metric};
use panoply::runtime::MemoryStats;
use panoply::{Device, Error, Result};
use ratatui_core::layout::{Alignment, Constraint, Layout, Rect};
use ratatui_core::style::{Color, Style, Stylize};
use ratatui_core::symbols::Marker;
use ratatui_core::terminal::{Frame, Terminal};
use ratatui_core::text::{Line, Span};
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui_crossterm::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{cursor, execute};
use ratatui_widgets::block::Block;
use ratatui_widgets::chart::{Axis, Chart, Dataset, GraphType, LegendPosition};
use ratatui_widgets::gauge::Gauge;
use ratatui_widgets::paragraph::Paragraph;

use super::curves::{ticks, tidy};
use super::metrics::summary;
use crate::output::INTERRUPTED;

/// Interval between two frames.
const EVERY: Duration = Duration::from_millis(100);

/// Maximum time to wait for a frame to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Maximum number of step losses kept; beyond it every second one is dropped.
const MAX_STEPS: usize = 2000;

/// True while a dashboard uses the terminal.
static OPEN: AtomicBool = AtomicBool::new(false);

/// Held while a frame is drawn.
static DRAWING: Mutex<()> = Mutex::new(());

thread_local! {
    /// True in the thread that draws.
    static DRAWS: Cell<bool> = const { Cell::new(false) };
}

const TRAIN: Color = Color::Cyan;
const HELD: Color = Color::Yellow;

/// The part of the display that is constant during a run.
pub struct RunInfo {
    /// Data and network.
    pub title: String,
    /// The device and the reason for its choice.
    pub device: String,
    /// Examples per step.
    pub batch: usize,
    /// Number of epochs.
    pub epochs: usize,
    /// Examples per epoch.
    pub examples: usize,
}

/// The part of the display that changes during a run.
struct State {
    history: Vec<EpochReport>,
    text: bool,
    /// Step losses by training time in epochs.
    steps: Vec<(f64, f64)>,
    now: Option<StepReport>,
    seen: u64,
    started: Instant,
    /// Examples per second, smoothed.
    rate: f64,
    memory: MemoryStats,
    stopping: bool,
}

/// A dashboard that uses the terminal until it is dropped.
pub struct Dashboard {
    shared: Arc<Mutex<Shared>>,
    drawing: Option<JoinHandle<()>>,
    /// Time of the last speed measurement, and the examples seen by then.
    looked: (Instant, u64),
}

/// State shared between training and the drawing thread.
struct Shared {
    facts: RunInfo,
    state: State,
    /// The error that ended the drawing.
    failed: Option<Error>,
}

/// Returns true while a dashboard uses the terminal.
pub fn is_open() -> bool {
    OPEN.load(Ordering::SeqCst)
}

/// Restores the terminal if a dashboard uses it.
pub fn leave() {
    if OPEN.swap(false, Ordering::SeqCst) {
        let _drawn = picture_ended();
        let _ = disable_raw_mode();
        let _ = execute!(stderr(), LeaveAlternateScreen, cursor::Show);
    }
}

/// Waits for the current frame to end, up to [`PATIENCE`] because the drawing thread can be waiting for the caller. Returns at once in
/// the drawing thread itself, which calls this when it panics.
fn picture_ended() -> Option<MutexGuard<'static, ()>> {
    if DRAWS.get() {
        return None;
    }
    let end = Instant::now() + PATIENCE;
    loop {
        match DRAWING.try_lock() {
            Ok(drawn) => return Some(drawn),
            Err(TryLockError::Poisoned(drawn)) => return Some(drawn.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() >= end => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Restores the terminal before a panic message is written, which would vanish with the alternate screen.
fn say_panics_where_they_are_read() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let say = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            say(panic);
        }));
    });
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        leave();
        if let Some(drawing) = self.drawing.take() {
            let _ = drawing.join();
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("cannot draw on the terminal", error)
}

impl Dashboard {
    /// Returns an error if stderr is not a terminal.
    pub fn check() -> Result<()> {
        match stderr().is_terminal() {
            true => Ok(()),
            false => Err(Error::mistake("--tui needs a terminal on stderr; run without it to get one line per epoch")),
        }
    }

    /// Opens the dashboard. `history` holds the epochs of earlier runs.
    pub fn open(facts: RunInfo, history: Vec<EpochReport>, text: bool, stop: Arc<AtomicBool>) -> Result<Dashboard> {
        let device = Device::current()?;
        let memory = device.memory_stats();
        say_panics_where_they_are_read();
        enable_raw_mode().map_err(failed)?;
        OPEN.store(true, Ordering::SeqCst);
        let entered = execute!(stderr(), EnterAlternateScreen, cursor::Hide);
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(stderr())));
        let terminal = terminal.map_err(|error| {
            leave();
            failed(error)
        })?;
        let now = Instant::now();
        let state = State {
            history,
            text,
            steps: Vec::new(),
            now: None,
            seen: 0,
            started: now,
            rate: 0.0,
            memory,
            stopping: false,
        };
        let shared = Arc::new(Mutex::new(Shared { facts, state, failed: None }));
        let seen = shared.clone();
        let drawing = std::thread::spawn(move || {
            DRAWS.set(true);
            if let Err(error) = keep_drawing(terminal, &seen, &device, &stop) {
                lock(&seen).failed = Some(error);
            }
        });
        Ok(Dashboard { shared, drawing: Some(drawing), looked: (now, 0) })
    }

    /// Records a step.
    pub fn step(&mut self, report: &StepReport) -> Result<()> {
        let mut shared = lock(&self.shared);
        let Shared { facts, state, failed } = &mut *shared;
        state.seen += facts.batch.min(facts.examples) as u64;
        if state.steps.len() >= MAX_STEPS {
            let mut at = 0;
            state.steps.retain(|_| {
                at += 1;
                at % 2 == 0
            });
        }
        let place = (report.epoch - 1) as f64 + report.step as f64 / report.steps as f64;
        state.steps.push((place, report.loss));
        state.now = Some(*report);
        let (then, seen) = self.looked;
        if then.elapsed() >= EVERY {
            let rate = (state.seen - seen) as f64 / then.elapsed().as_secs_f64();
            state.rate = if state.rate == 0.0 { rate } else { 0.7 * state.rate + 0.3 * rate };
            self.looked = (Instant::now(), state.seen);
        }
        failed.clone().map_or(Ok(()), Err)
    }

    /// Records an epoch.
    pub fn epoch(&mut self, report: &EpochReport) -> Result<()> {
        let mut shared = lock(&self.shared);
        shared.state.history.push(report.clone());
        shared.failed.clone().map_or(Ok(()), Err)
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Draws frames and handles keys until the dashboard is closed.
fn keep_drawing(
    mut terminal: Terminal<CrosstermBackend<Stderr>>,
    shared: &Mutex<Shared>,
    device: &Device,
    stop: &AtomicBool,
) -> Result<()> {
    while is_open() {
        {
            let _drawing = DRAWING.lock().unwrap_or_else(PoisonError::into_inner);
            let mut shared = lock(shared);
            let Shared { facts, state, .. } = &mut *shared;
            state.memory = device.memory_stats();
            state.stopping = stop.load(Ordering::SeqCst);
            if is_open() {
                terminal.draw(|frame| draw(frame, facts, state)).map_err(failed)?;
            }
        }
        handle_keys(stop)?;
    }
    Ok(())
}

/// Handles keys for the time of one frame. `q` and Ctrl-C, which raises no signal in raw mode, end training after this step; a second
/// Ctrl-C ends the program.
fn handle_keys(stop: &AtomicBool) -> Result<()> {
    if !event::poll(EVERY).map_err(failed)? {
        return Ok(());
    }
    let Event::Key(key) = event::read().map_err(failed)? else { return Ok(()) };
    let interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    let quit = matches!(key.code, KeyCode::Char('q') | KeyCode::Esc);
    if key.kind != KeyEventKind::Press || !(quit || interrupt) {
        return Ok(());
    }
    if stop.swap(true, Ordering::SeqCst) && interrupt {
        leave();
        std::process::exit(INTERRUPTED);
    }
    Ok(())
}

/// Draws one frame.
fn draw(frame: &mut Frame<'_>, facts: &RunInfo, state: &State) {
    let rows = [
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Length(6),
        Constraint::Length(1),
    ];
    let [head, progress, charts, numbers, foot] = Layout::vertical(rows).areas(frame.area());
    let title = Line::from(vec![Span::from("panoply train ").bold(), Span::from(facts.title.as_str())]);
    frame.render_widget(Paragraph::new(vec![title, Line::from(format!("device: {}", facts.device)).dim()]), head);
    frame.render_widget(gauge(facts, state), progress);
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(charts);
    draw_losses(frame, left, facts, state);
    draw_scores(frame, right, facts, state);
    let [left, right] = Layout::horizontal([Constraint::Fill(4), Constraint::Fill(3)]).areas(numbers);
    frame.render_widget(Paragraph::new(draw_epochs(state)).block(Block::bordered().title(" epochs ")), left);
    frame.render_widget(
        Paragraph::new(draw_speed(facts, state)).block(Block::bordered().title(" speed and memory ")),
        right,
    );
    let keys = match state.stopping {
        true => "finishing this step; Ctrl-C again stops immediately",
        false => "q or Ctrl-C finishes this step and saves",
    };
    frame.render_widget(Paragraph::new(keys).dim().alignment(Alignment::Right), foot);
}

/// Returns the fraction of all steps that is done.
fn progress(facts: &RunInfo, state: &State) -> f64 {
    let now =
        state.now.map_or(state.history.len() as f64, |now| (now.epoch - 1) as f64 + now.step as f64 / now.steps as f64);
    (now / facts.epochs.max(1) as f64).clamp(0.0, 1.0)
}

fn gauge(facts: &RunInfo, state: &State) -> Gauge<'static> {
    let label = match state.now {
        Some(now) => format!("epoch {} of {}, step {} of {}", now.epoch, facts.epochs, now.step, now.steps),
        None => "compiling the first step".to_string(),
    };
    Gauge::default().ratio(progress(facts, state)).label(label).gauge_style(Style::new().fg(TRAIN).bg(Color::DarkGray))
}

/// A curve: name, color and points.
type Curve<'a> = (&'a str, Color, &'a [(f64, f64)]);

fn draw_losses(frame: &mut Frame<'_>, area: Rect, facts: &RunInfo, state: &State) {
    let held: Vec<(f64, f64)> = state.history.iter().map(|report| (report.epoch as f64, report.val_loss)).collect();
    let before: Vec<(f64, f64)> = state.history.iter().map(|report| (report.epoch as f64, report.train_loss)).collect();
    let train = if state.steps.is_empty() { &before } else { &state.steps };
    let top = train.iter().chain(&held).map(|point| point.1).filter(|loss| loss.is_finite()).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { 1.0 };
    chart(frame, area, " loss ", [0.0, top], facts.epochs, &[("training", TRAIN, train), ("validation", HELD, &held)]);
}

fn draw_scores(frame: &mut Frame<'_>, area: Rect, facts: &RunInfo, state: &State) {
    let of = |score: fn(&EpochReport) -> f64| -> Vec<(f64, f64)> {
        state.history.iter().map(|report| (report.epoch as f64, score(report))).collect()
    };
    let (train, held) = (of(|report| report.train_score), of(|report| report.val_score));
    let low = train.iter().chain(&held).map(|point| point.1).filter(|score| score.is_finite()).fold(1.0, f64::min);
    let low = if low < 1.0 { (low * 10.0).floor() / 10.0 } else { 0.0 };
    let title = match state.history.first().map(|report| report.metric) {
        Some(Metric::R2) => " R² ",
        _ => " accuracy ",
    };
    chart(frame, area, title, [low, 1.0], facts.epochs, &[("training", TRAIN, &train), ("validation", HELD, &held)]);
}

fn chart(frame: &mut Frame<'_>, area: Rect, title: &str, bounds: [f64; 2], epochs: usize, curves: &[Curve<'_>]) {
    let sets = curves.iter().map(|(name, color, points)| {
        let set = Dataset::default().name(*name).marker(Marker::Braille).graph_type(GraphType::Line);
        set.style(Style::new().fg(*color)).data(points)
    });
    // Round numbers around the values. The chart spreads its labels evenly and has room for six.
    let mut ticks = ticks(bounds[0], bounds[1]);
    let every = (ticks.len() - 1).div_ceil(5);
    while !(ticks.len() - 1).is_multiple_of(every) {
        ticks.push(2.0 * ticks[ticks.len() - 1] - ticks[ticks.len() - 2]);
    }
    let bounds = [ticks[0], ticks[ticks.len() - 1]];
    let across = Axis::default().bounds([0.0, epochs.max(1) as f64]).labels(["0".to_string(), epochs.to_string()]);
    let up: Vec<String> = ticks.iter().step_by(every).map(|tick| tidy(*tick)).collect();
    let chart = Chart::new(sets.collect())
        .block(Block::bordered().title(title))
        .x_axis(across.style(Style::new().dim()))
        .y_axis(Axis::default().bounds(bounds).labels(up).style(Style::new().dim()))
        .legend_position(Some(LegendPosition::TopRight))
        .hidden_legend_constraints((Constraint::Ratio(1, 3), Constraint::Ratio(1, 4)));
    frame.render_widget(chart, area);
}

/// Returns lines for the last epochs and the best one.
fn draw_epochs(state: &State) -> Vec<Line<'static>> {
    let line = |report: &EpochReport| {
        let reached = summary(report, state.text);
        format!("{:>4}  loss {:.4}, validation {:.4}, {reached}", report.epoch, report.train_loss, report.val_loss)
    };
    let best = EpochReport::best(&state.history);
    let last = state.history.iter().rev().take(3).rev().map(|report| Line::from(line(report)));
    let best = best.map(|report| Line::from(format!("best {}", line(report).trim_start())).bold());
    match best {
        Some(best) => last.chain([best]).collect(),
        None => vec![Line::from("no epoch has ended yet")],
    }
}

fn draw_speed(facts: &RunInfo, state: &State) -> Vec<Line<'static>> {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let (gone, made) = (state.started.elapsed().as_secs_f64(), progress(facts, state));
    let left = if made > 0.0 && state.rate > 0.0 {
        let examples = (1.0 - made) * facts.epochs as f64 * facts.examples as f64;
        format!(", about {} left", clock(examples / state.rate))
    } else {
        String::new()
    };
    let memory = &state.memory;
    let cap = memory.limit.map_or(String::new(), |cap| format!(" of {:.1}", mib(cap)));
    vec![
        Line::from(format!("{:.0} examples/s, {:.1} steps/s", state.rate, state.rate / facts.batch.max(1) as f64)),
        Line::from(format!("{} elapsed{left}", clock(gone))),
        Line::from(format!("memory {:.1} MiB{cap}, at most {:.1}", mib(memory.allocated), mib(memory.peak_allocated))),
        Line::from(format!("{:.1} MiB to the device, {:.1} back", mib(memory.uploaded), mib(memory.downloaded))),
    ]
}

/// Formats a duration as `1:02:03`.
fn clock(seconds: f64) -> String {
    let whole = seconds.clamp(0.0, 1e8) as u64;
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui_core::backend::TestBackend;

    fn report(epoch: usize, loss: f64) -> EpochReport {
        let (validation_loss, train_score, score) = (loss * 1.25, 0.98, 0.9 + epoch as f64 / 100.0);
        EpochReport {
            epoch,
            train_loss: loss,
            val_loss: validation_loss,
            metric: Metric::Accuracy,
            train_score,
            val_score: score,
            val_macro_f1: None,
            monitor: Default::default(),
            seconds: 1.0,
        }
    }

    fn rendered(width: u16, height: u16, history: Vec<EpochReport>, now: Option<StepReport>) -> Vec<String> {
        let facts = RunInfo {
            title: "digits · mlp".to_string(),
            device: "cpu (a test)".to_string(),
            batch: 64,
            epochs: 10,
            examples: 1438,
        };
        let state = State {
            history,
            text: false,
            steps: (0..40).map(|step| (f64::from(step) / 20.0, 2.0 / f64::from(step + 1))).collect(),
            now,
            seen: 2876,
            started: Instant::now(),
            rate: 6400.0,
            memory: MemoryStats {
                allocated: 3 << 20,
                peak_allocated: 5 << 20,
                uploaded: 1 << 20,
                ..MemoryStats::default()
            },
            stopping: false,
        };
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &facts, &state)).unwrap();
        let cells = terminal.backend().buffer().content();
        cells.chunks(width.into()).map(|row| row.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    #[test]
    fn frame_shows_progress_curves_speed_and_memory() {
        let now = StepReport { epoch: 3, step: 12, steps: 23, loss: 0.5 };
        let rows = rendered(110, 30, vec![report(1, 1.0), report(2, 0.5)], Some(now));
        let all = rows.join("\n");
        for part in [
            "panoply train digits · mlp",
            "device: cpu (a test)",
            "epoch 3 of 10, step 12 of 23",
            "   2  loss 0.5000, validation 0.6250, accuracy 92.0 %",
            "best 2  loss 0.5000, validation 0.6250, accuracy 92.0 %",
            "6400 examples/s, 100.0 steps/s",
            "memory 3.0 MiB, at most 5.0",
            "1.0 MiB to the device, 0.0 back",
            "training",
            "│validation│",
            "q or Ctrl-C",
        ] {
            assert!(all.contains(part), "{part} in\n{all}");
        }
        // The loss falls: its curve starts at the upper left and ends lower.
        let braille = |row: &String| row.chars().take(55).any(|c| ('\u{2801}'..='\u{28ff}').contains(&c));
        assert!(rows[4..8].iter().any(braille) && rows[14..22].iter().any(braille), "{all}");
    }

    #[test]
    fn waiting_for_a_frame_times_out_and_skips_the_drawing_thread() {
        let waited = |draws| {
            let waiting = std::thread::spawn(move || {
                DRAWS.set(draws);
                let start = Instant::now();
                (picture_ended().is_some(), start.elapsed() >= PATIENCE)
            });
            waiting.join().unwrap()
        };
        let picture = DRAWING.lock().unwrap();
        assert_eq!(waited(false), (false, true));
        assert_eq!(waited(true), (false, false));
        drop(picture);
        assert_eq!(waited(false), (true, false));
    }

    #[test]
    fn every_size_and_an_empty_history_can_be_drawn() {
        for (width, height) in [(1, 1), (20, 5), (40, 12), (300, 80)] {
            rendered(width, height, vec![], None);
            rendered(width, height, vec![report(1, f64::NAN)], None);
        }
        let all = rendered(110, 30, vec![], None).join("\n");
        assert!(all.contains("no epoch has ended yet") && all.contains("compiling the first step"), "{all}");
        assert_eq!((clock(3723.9), clock(62.0)), ("1:02:03".to_string(), "1:02".to_string()));
    }
}
