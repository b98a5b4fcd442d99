//! Tables of values by ids that are never reused.

/// Values by id. An id consists of a slot and its generation, so a stale id finds nothing.
pub struct Table<T> {
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Table<T> {
    /// Inserts a value and returns its id, which is never 0.
    pub fn insert(&mut self, value: T) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push((0, None));
            self.places.len() as u32 - 1
        });
        let (generation, slot) = &mut self.places[place as usize];
        *generation = generation.wrapping_add(1).max(1);
        *slot = Some(value);
        u64::from(*generation) << 32 | u64::from(place)
    }

    /// Returns the value of an id.
    pub fn get(&self, id: u64) -> Option<&T> {
        match self.places.get(id as u32 as usize) {
            Some((generation, value)) if u64::from(*generation) == id >> 32 => value.as_ref(),
            _ => None,
        }
    }

    /// Returns all values.
    #[cfg(feature = "wgpu")]
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, value)| value.as_ref())
    }

    /// Removes the value of an id and returns it.
    pub fn remove(&mut self, id: u64) -> Option<T> {
        match self.places.get_mut(id as u32 as usize) {
            Some((generation, value)) if u64::from(*generation) == id >> 32 => {
                let value = value.take()?;
                self.free.push(id as u32);
                Some(value)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reused_slots_get_new_ids_and_stale_ids_find_nothing() {
        let mut table = Table::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!((table.get(a), table.get(b), table.get(0)), (Some(&'a'), Some(&'b'), None));
        assert_eq!((table.remove(a), table.remove(a)), (Some('a'), None));
        let c = table.insert('c');
        assert_eq!(c as u32, a as u32, "the slot is reused");
        assert_eq!((table.get(a), table.get(c), table.get(b)), (None, Some(&'c'), Some(&'b')));
    }
}
