//! Shadow memory: for each element, the past accesses and whether it was written.

use panoply_ir::interpret::AccessKind;
use panoply_ir::kernel::{Access, Loc, Space};

/// Number of elements whose shadow is allocated together on first access.
const PAGE: usize = 1024;

/// A past access.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mark {
    /// The linear id of the group.
    pub(super) group: u64,
    /// The linear id within the group.
    pub(super) item: u32,
    /// Number of barriers and group starts before the access.
    pub(super) epoch: u32,
    /// Source location.
    pub(super) at: Loc,
}

/// A past access that is not ordered with the current one.
pub(super) struct Conflict {
    pub(super) touch: AccessKind,
    pub(super) mark: Mark,
}

/// The shadow of one memory.
pub(super) struct Shadow {
    space: Space,
    /// Past accesses of each element, page by page.
    pages: Vec<Option<Box<[Cell]>>>,
    /// True for each written element of a group's arrays; private arrays are stored one after the other.
    written: Vec<bool>,
}

#[derive(Clone, Default)]
struct Cell {
    loads: Track,
    stores: Track,
    atomics: Track,
}

/// Past accesses of one type to one element. Groups run one after the other, so three are enough: if any past access
/// conflicts with a new one, one of these does.
#[derive(Clone, Default)]
struct Track {
    /// The last access.
    last: Option<Mark>,
    others: Option<Box<OtherAccesses>>,
}

#[derive(Clone, Default)]
struct OtherAccesses {
    /// The last access by another work-item of the same group as `last`.
    item: Option<Mark>,
    /// The last access by another group.
    group: Option<Mark>,
}

impl Track {
    fn add(&mut self, mark: Mark) {
        match self.last {
            Some(last) if last.group != mark.group => {
                self.others = Some(Box::new(OtherAccesses { item: None, group: Some(last) }));
            }
            Some(last) if last.item != mark.item => self.others.get_or_insert_default().item = Some(last),
            Some(_) | None => {}
        }
        self.last = Some(mark);
    }

    /// Returns a past access that is not ordered with this one.
    fn unordered(&self, mark: Mark) -> Option<Mark> {
        let others = self.others.as_deref();
        let past = [self.last, others.and_then(|others| others.item), others.and_then(|others| others.group)];
        past.into_iter()
            .flatten()
            .find(|past| past.group != mark.group || past.epoch == mark.epoch && past.item != mark.item)
    }
}

impl Shadow {
    pub(super) fn new(space: Space, items: u32) -> Shadow {
        let written = match space {
            Space::Buffer(_) => 0,
            Space::Shared(len) => len as usize,
            Space::Private(len) => len as usize * items as usize,
        };
        Shadow { space, pages: Vec::new(), written: vec![false; written] }
    }

    /// Resets a group's arrays; the history of buffers is kept.
    pub(super) fn start_group(&mut self) {
        self.written.fill(false);
        if !matches!(self.space, Space::Buffer(_)) {
            self.pages.clear();
        }
    }

    /// Returns true if an element is initialized.
    pub(super) fn is_written(&self, element: u64, item: u32) -> bool {
        self.place(element, item).is_none_or(|place| self.written[place])
    }

    fn place(&self, element: u64, item: u32) -> Option<usize> {
        match self.space {
            Space::Buffer(_) => None,
            Space::Shared(_) => Some(element as usize),
            Space::Private(len) => Some(item as usize * len as usize + element as usize),
        }
    }

    /// Records an access and returns a past one that it races with.
    pub(super) fn touch(&mut self, touch: AccessKind, element: u64, mark: Mark) -> Option<Conflict> {
        if touch != AccessKind::Load
            && let Some(place) = self.place(element, mark.item)
        {
            self.written[place] = true;
        }
        if matches!(self.space, Space::Private(_) | Space::Buffer(Access::In)) {
            return None;
        }
        let cell = self.cell(element as usize);
        let (own, against): (&mut Track, [(AccessKind, &Track); 2]) = match touch {
            AccessKind::Load => {
                (&mut cell.loads, [(AccessKind::Store, &cell.stores), (AccessKind::Atomic, &cell.atomics)])
            }
            AccessKind::Atomic => {
                (&mut cell.atomics, [(AccessKind::Store, &cell.stores), (AccessKind::Load, &cell.loads)])
            }
            AccessKind::Store => {
                (&mut cell.stores, [(AccessKind::Load, &cell.loads), (AccessKind::Atomic, &cell.atomics)])
            }
        };
        let mut conflict = None;
        if touch == AccessKind::Store {
            conflict = own.unordered(mark).map(|mark| Conflict { touch, mark });
        }
        own.add(mark);
        let others =
            against.into_iter().find_map(|(touch, track)| track.unordered(mark).map(|mark| Conflict { touch, mark }));
        conflict.or(others)
    }

    fn cell(&mut self, element: usize) -> &mut Cell {
        let page = element / PAGE;
        if page >= self.pages.len() {
            self.pages.resize(page + 1, None);
        }
        let cells = self.pages[page].get_or_insert_with(|| vec![Cell::default(); PAGE].into_boxed_slice());
        &mut cells[element % PAGE]
    }
}
