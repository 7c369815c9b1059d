//! Pages of the kernel's ring buffer as it gave them, kept for a `trace.dat`.

use std::collections::VecDeque;

/// So many bytes of pages are kept at most.
const BYTES_MAX: usize = 64 << 20;

/// A page.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) cpu: u32,
    /// Its first event and its last one.
    from_ns: u64,
    to_ns: u64,
    /// Whether the page before it was kept too.
    pub(super) follows: bool,
    pub(super) bytes: Box<[u8]>,
}

/// The pages that are kept.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pages: VecDeque<Page>,
    bytes: usize,
}

impl Pages {
    /// Keeps a page with events from an instant to another one, filled up to its whole size.
    pub(super) fn push(
        &mut self,
        cpu: u32,
        (from_ns, to_ns): (u64, u64),
        page: &[u8],
        size: usize,
    ) {
        let mut bytes = page.to_vec();
        bytes.resize(size.max(page.len()), 0);
        self.bytes += bytes.len();
        let follows = true;
        self.pages.push_back(Page { cpu, from_ns, to_ns, follows, bytes: bytes.into() });
    }

    /// Lets go of pages that end before an instant and aren't of any of these times, of which the first ones matter
    /// most: where there are too many pages, the last times lose theirs.
    pub(super) fn retain(&mut self, since_ns: u64, times: &[(u64, u64)]) {
        let mut kept = times.len();
        self.retain_times(since_ns, times);
        while self.bytes > BYTES_MAX && kept > 0 {
            kept /= 2;
            self.retain_times(since_ns, &times[..kept]);
        }
        while self.bytes > BYTES_MAX {
            let Some(page) = self.pages.pop_front() else { break };
            self.bytes -= page.bytes.len();
            self.follow_gap(page.cpu);
        }
    }

    fn retain_times(&mut self, since_ns: u64, times: &[(u64, u64)]) {
        let is_meant = |page: &Page| {
            let overlaps = |(from, to): &(u64, u64)| page.from_ns <= *to && page.to_ns >= *from;
            page.to_ns >= since_ns || times.iter().any(overlaps)
        };
        let mut gaps: Vec<u32> = Vec::new();
        for mut page in std::mem::take(&mut self.pages) {
            if !is_meant(&page) {
                self.bytes -= page.bytes.len();
                gaps.push(page.cpu);
                continue;
            }
            page.follows &= !gaps.contains(&page.cpu);
            gaps.retain(|cpu| *cpu != page.cpu);
            self.pages.push_back(page);
        }
    }

    fn follow_gap(&mut self, cpu: u32) {
        if let Some(next) = self.pages.iter_mut().find(|page| page.cpu == cpu) {
            next.follows = false;
        }
    }

    /// The pages of a CPU, in the order of time.
    pub(super) fn of_cpu(&self, cpu: u32) -> impl Iterator<Item = &Page> {
        self.pages.iter().filter(move |page| page.cpu == cpu)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus_and_gaps(pages: &Pages) -> Vec<(u32, u64, bool)> {
        pages.pages.iter().map(|page| (page.cpu, page.from_ns, page.follows)).collect()
    }

    #[test]
    fn pages_of_late_activations_stay_and_what_is_gone_before_them_is_marked() {
        let mut pages = Pages::default();
        for at_ns in [10, 20, 30, 40] {
            pages.push(0, (at_ns, at_ns + 9), b"page", 4096);
            pages.push(1, (at_ns, at_ns + 9), b"page", 4096);
        }
        pages.retain(40, &[(25, 28)]);
        let kept = [(0, 20, false), (1, 20, false), (0, 40, false), (1, 40, false)];
        assert_eq!(cpus_and_gaps(&pages), kept);
        assert_eq!((pages.bytes, pages.of_cpu(1).count()), (4 * 4096, 2));
    }

    #[test]
    fn the_worst_keep_their_pages_where_there_are_too_many() {
        let mut pages = Pages::default();
        let size = BYTES_MAX / 4;
        for at_ns in [10, 20, 30, 40, 50, 60] {
            pages.push(0, (at_ns, at_ns), b"page", size);
        }
        pages.retain(100, &[(60, 60), (10, 10), (20, 20), (30, 30), (40, 40), (50, 50)]);
        assert_eq!(
            cpus_and_gaps(&pages).iter().map(|page| page.1).collect::<Vec<_>>(),
            [10, 20, 60]
        );
    }
}
