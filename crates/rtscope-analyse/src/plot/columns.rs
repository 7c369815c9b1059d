//! Time as columns: slices of all threads side by side, and several after each other in a long run.
//!
//! A column keeps the largest of its maxima, never their mean: no spike is averaged away.

use std::collections::BTreeMap;

use rtscope_model::{
    record::Record,
    slice::{Scope, Slice},
};

/// The most columns of a plot over time, where there are not more cells than that.
pub(crate) const COLUMNS: usize = 400;

/// Columns in the order of time, with how slices fall into them.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) columns: Vec<Column>,
    grids: Vec<Grid>,
    /// Place in `columns` of each column of the grids: those in which no slice starts are left out.
    kept: Vec<usize>,
}

/// A span of time within one cell.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Place of the cell among those that are shown.
    pub(crate) cell: usize,
    /// Start of its first slice.
    pub(crate) start_ns: u64,
    /// End of its last slice.
    pub(crate) end_ns: u64,
    /// What each thread saw, by its place among the threads.
    pub(crate) seen: Vec<ColumnShare>,
}

/// What one thread saw in a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ColumnShare {
    /// Measured activations.
    pub(crate) recorded: u64,
    /// Swallowed activations.
    pub(crate) missed: u64,
    /// Wake-ups before their expiry.
    pub(crate) early: u64,
    /// Latencies beyond the exact buckets.
    pub(crate) overflow: u64,
    pub(crate) sum_ns: u64,
    pub(crate) max_ns: u64,
    /// Its programmed expiry.
    pub(crate) max_at_ns: u64,
}

/// How the slices of one cell fall into columns.
#[derive(Clone, Copy, Debug)]
struct Grid {
    cell: u32,
    place: usize,
    /// Start of the cell's last slice.
    last_ns: u64,
    slice_ns: u64,
    slices: u64,
    first: usize,
    each: u64,
}

impl Columns {
    /// Gathers the slices of some cells, named by their index, and of threads, whose places are below `threads`.
    pub(crate) fn new(
        record: &Record,
        cells: &[u32],
        places: &BTreeMap<u32, usize>,
        threads: usize,
    ) -> Columns {
        let mut grids = grids(record, cells);
        let limit = COLUMNS.max(grids.len()) as u64;
        let mut each = 1;
        while grids.iter().map(|grid| grid.slices.div_ceil(each)).sum::<u64>() > limit {
            each += 1 + each / 32;
        }
        let empty = Column {
            cell: 0,
            start_ns: u64::MAX,
            end_ns: 0,
            seen: vec![ColumnShare::default(); threads],
        };
        let mut columns: Vec<Column> = Vec::new();
        for grid in &mut grids {
            (grid.first, grid.each) = (columns.len(), each);
            let column = Column { cell: grid.place, ..empty.clone() };
            columns.resize(columns.len() + grid.slices.div_ceil(each) as usize, column);
        }
        let kept = (0..columns.len()).collect();
        let mut gathered = Columns { columns, grids, kept };
        gathered.fill(record, cells, places);
        gathered.leave_out_empty();
        gathered
    }

    fn fill(&mut self, record: &Record, cells: &[u32], places: &BTreeMap<u32, usize>) {
        let exact: Vec<u32> = cells.iter().map(|cell| record.layout_of(*cell).exact).collect();
        for slice in &record.slices {
            let Some(at) = self.index_of(slice) else { continue };
            let column = &mut self.columns[at];
            let Some(&place) = places.get(&slice.thread) else { continue };
            column.start_ns = column.start_ns.min(slice.start_ns);
            column.end_ns = column.end_ns.max(slice.end_ns);
            column.seen[place].add(slice, exact[column.cell]);
        }
    }

    /// Slices that were joined reach over the columns that follow; of a damaged record some are missing.
    fn leave_out_empty(&mut self) {
        let mut next = 0;
        for (column, place) in self.columns.iter().zip(&mut self.kept) {
            *place = next;
            next += usize::from(!column.is_empty());
        }
        self.columns.retain(|column| !column.is_empty());
    }

    /// The column of a slice; none for slices of cells that are not shown.
    pub(crate) fn index_of(&self, slice: &Slice) -> Option<usize> {
        let Scope::Cell(cell) = slice.scope else { return None };
        let grid = self.grids.iter().find(|grid| grid.cell == cell)?;
        let place = self.kept[grid.first + (grid.index(slice.start_ns) / grid.each) as usize];
        // A damaged slice may leave its column as if it were empty.
        (place < self.columns.len()).then_some(place)
    }
}

impl Grid {
    /// How many slices lie between one that starts at an instant and the last. Counted from the
    /// end, because the first slice of a cell is often shorter than the others; threads that start
    /// up to a quarter of a slice apart agree.
    fn to_go(last_ns: u64, slice_ns: u64, start_ns: u64) -> u64 {
        last_ns.saturating_sub(start_ns).saturating_add(slice_ns / 4 * 3) / slice_ns
    }

    /// Which slice of the cell starts at an instant.
    fn index(&self, start_ns: u64) -> u64 {
        let to_go = Grid::to_go(self.last_ns, self.slice_ns, start_ns);
        (self.slices - 1).saturating_sub(to_go)
    }
}

/// One grid for each cell that has slices, from the first start of a slice to the last.
fn grids(record: &Record, cells: &[u32]) -> Vec<Grid> {
    let mut starts: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for slice in &record.slices {
        if let Scope::Cell(cell) = slice.scope {
            let span = starts.entry(cell).or_insert((slice.start_ns, slice.start_ns));
            *span = (span.0.min(slice.start_ns), span.1.max(slice.start_ns));
        }
    }
    let grid = |(place, &cell): (usize, &u32)| {
        let &(start_ns, last_ns) = starts.get(&cell)?;
        let phase = record.plan.phases.get(cell as usize);
        let slice_ns = phase.map_or(1_000_000_000, |phase| phase.sampler.slice.0).max(1);
        // Slices of a long record are joined: a finer grid would have columns without any.
        let slice_ns = slice_ns.max(record.content.joined_ns.unwrap_or(0));
        let slices = Grid::to_go(last_ns, slice_ns, start_ns) + 1;
        Some(Grid { cell, place, last_ns, slice_ns, slices, first: 0, each: 1 })
    };
    cells.iter().enumerate().filter_map(grid).collect()
}

impl ColumnShare {
    fn add(&mut self, slice: &Slice, exact: u32) {
        self.recorded += slice.recorded;
        self.missed += slice.missed;
        self.early += slice.early;
        let beyond = slice.bins.iter().filter(|bin| bin.0 >= exact);
        self.overflow += beyond.map(|bin| bin.1).sum::<u64>();
        self.sum_ns = self.sum_ns.saturating_add(slice.sum_ns);
        if slice.recorded > 0 && slice.max_ns >= self.max_ns {
            (self.max_ns, self.max_at_ns) = (slice.max_ns, slice.max_at_ns);
        }
    }

    /// Mean latency; none when nothing was recorded.
    pub(crate) fn mean_ns(&self) -> Option<f64> {
        (self.recorded > 0).then(|| self.sum_ns as f64 / self.recorded as f64)
    }
}

impl Column {
    fn is_empty(&self) -> bool {
        self.start_ns == u64::MAX
    }

    pub(crate) fn all(&self) -> ColumnShare {
        self.seen.iter().fold(ColumnShare::default(), |all, seen| {
            let later = seen.max_ns > all.max_ns;
            ColumnShare {
                recorded: all.recorded + seen.recorded,
                missed: all.missed + seen.missed,
                early: all.early + seen.early,
                overflow: all.overflow + seen.overflow,
                sum_ns: all.sum_ns.saturating_add(seen.sum_ns),
                max_ns: all.max_ns.max(seen.max_ns),
                max_at_ns: if later { seen.max_at_ns } else { all.max_at_ns },
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judge,
        plot::{fixture, scene::Scene},
    };

    #[test]
    fn a_short_first_slice_has_a_column_of_its_own() {
        let mut record = fixture::long(10);
        record.slices[0].start_ns = 550_000_000;
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let columns = &scene.columns().columns;
        let spans: Vec<(u64, u64)> = columns.iter().map(|c| (c.start_ns, c.end_ns)).collect();
        assert_eq!(spans.len(), 10);
        assert_eq!(spans[..2], [(550_000_000, 1_000_000_000), (1_000_000_000, 2_000_000_000)]);
    }

    #[test]
    fn a_damaged_instant_neither_hangs_nor_fills_the_memory() {
        let mut record = fixture::long(10);
        record.slices[9].start_ns = u64::MAX - 5;
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let columns = &scene.columns().columns;
        assert!(columns.len() <= COLUMNS, "{}", columns.len());
        assert_eq!(columns.iter().map(|column| column.all().recorded).sum::<u64>(), 100);
    }

    #[test]
    fn slices_that_were_joined_make_wide_columns_and_no_empty_ones() {
        let mut record = fixture::long(100);
        // The first half of the run as one slice.
        let mut first = record.slices.remove(0);
        record.slices.drain(..49).for_each(|slice| first.absorb(&slice));
        record.slices.insert(0, first);
        let judgement = judge(&record, &[]);
        let scene = Scene::new(&record, &judgement, None);
        let columns = scene.columns();
        assert_eq!(columns.columns.len(), 51);
        assert!(columns.columns.windows(2).all(|pair| pair[0].end_ns == pair[1].start_ns));
        for (at, slice) in record.slices.iter().enumerate() {
            assert_eq!(columns.index_of(slice), Some(at));
        }
    }
}
