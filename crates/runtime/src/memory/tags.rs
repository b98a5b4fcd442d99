//! Registry of a device's live buffers: size and tag. Inserting and removing cost a few nanoseconds; sums are computed on demand.

use std::collections::HashMap;
use std::sync::Arc;

use super::stats::TaggedMemory;

/// Index of a row of [`Live`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveId(u32);

#[derive(Default)]
pub(crate) struct Live {
    rows: Vec<Option<(u64, Option<Arc<str>>)>>,
    vacant: Vec<u32>,
}

impl Live {
    pub fn insert(&mut self, bytes: u64, tag: Option<Arc<str>>) -> LiveId {
        let row = Some((bytes, tag));
        match self.vacant.pop() {
            Some(id) => {
                self.rows[id as usize] = row;
                LiveId(id)
            }
            None => {
                self.rows.push(row);
                LiveId(self.rows.len() as u32 - 1)
            }
        }
    }

    pub fn remove(&mut self, id: LiveId) {
        self.rows[id.0 as usize] = None;
        self.vacant.push(id.0);
    }

    /// Returns the bytes by tag, largest first.
    pub fn by_tag(&self) -> Vec<TaggedMemory> {
        let mut sums: HashMap<Option<Arc<str>>, (u64, u64)> = HashMap::new();
        for (bytes, tag) in self.rows.iter().flatten() {
            let sum = sums.entry(tag.clone()).or_default();
            sum.0 += bytes;
            sum.1 += 1;
        }
        let mut tagged: Vec<TaggedMemory> =
            sums.into_iter().map(|(tag, (bytes, buffers))| TaggedMemory { tag, bytes, buffers }).collect();
        tagged.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.tag.cmp(&b.tag)));
        tagged
    }
}
