//! `train --timeline`: kernels, copies and messages of all ranks over time, as files of the run.

use std::path::Path;

use panoply::Result;
use panoply::mesh::{RankGroup, TimelineRecording};
use panoply::nn::checkpoint::write_atomic;
use panoply::runtime::log;

use super::arguments::TrainCommand;
use crate::output::DeviceSelection;

/// Starts recording if the command asks for it.
pub fn start(
    arguments: &TrainCommand,
    choice: &DeviceSelection,
    ranks: Option<&RankGroup>,
) -> Result<Option<TimelineRecording>> {
    let devices = [choice.device().clone()];
    arguments.timeline.then(|| TimelineRecording::start(ranks, &devices)).transpose()
}

/// Ends the recording, which all ranks must do. Rank 0 passes the run folder, where the files are written.
pub fn finish(recording: Option<TimelineRecording>, folder: Option<&Path>) -> Result<()> {
    let Some(timeline) = recording.map(TimelineRecording::finish).transpose()? else { return Ok(()) };
    let Some(folder) = folder else { return Ok(()) };
    if timeline.dropped > 0 {
        log::warn(|| format!("the timeline lacks the last {} events: a rank keeps about a million", timeline.dropped));
    }
    write_atomic(&folder.join("timeline.json"), timeline.chrome_trace()?.as_bytes())?;
    write_atomic(&folder.join("timeline.svg"), timeline.svg().as_bytes())
}
