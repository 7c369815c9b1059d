use std::fs;

use rtscope_testing::clock::SimulatedClock;

use super::*;

/// A clock that goes on by a millisecond with each reading.
fn ticking() -> SimulatedClock {
    SimulatedClock::at(0).with_reading(1_000_000)
}

/// Events as a kernel would tell them, then an end.
struct Told {
    events: Vec<LineEdge>,
    next: usize,
    end: Result<Option<LineEdge>, String>,
}

impl Events for Told {
    fn next(&mut self, _: Duration) -> Result<Option<LineEdge>, String> {
        self.next += 1;
        self.events.get(self.next - 1).map_or_else(|| self.end.clone(), |event| Ok(Some(*event)))
    }

    fn last(&self) -> u32 {
        self.events[..self.next.min(self.events.len())].last().map_or(0, |event| event.number)
    }
}

const LIMITS: CaptureLimits =
    CaptureLimits { duration_ns: 1_000_000_000, edges_max: 1_000, gaps_max: 100, rest: None };

/// A wave of 1 kHz with edges of these numbers.
fn told(numbers: impl IntoIterator<Item = u32>) -> Told {
    let event = |number: u32| LineEdge {
        at_ns: 2_000_000 + u64::from(number) * 500_000,
        rises: number % 2 == 1,
        number,
    };
    Told { events: numbers.into_iter().map(event).collect(), next: 0, end: Ok(None) }
}

fn collected(mut told: Told) -> (Capture, Option<String>) {
    collect(&mut told, "gpio:gpiochip0/1", &ticking(), LIMITS)
}

#[test]
fn each_event_is_an_edge_with_the_kernel_s_stamp() {
    let (capture, ended) = collected(told(1..=100));
    assert_eq!((capture.edges.len(), capture.made, ended), (100, Some(100), None));
    assert_eq!((capture.edges[0].at_ns(), capture.edges[0].rises()), (2_500_000, true));
    assert!(capture.gaps.is_empty() && !capture.is_full);
}

#[test]
fn numbers_that_are_left_out_are_lost_edges_in_a_gap() {
    // The buffer was full: edges 21 to 25 and 61 to 64 are not told, and the very first two.
    let (capture, _) = collected(told((3..=20).chain(26..=60).chain(65..=100)));
    assert_eq!((capture.made, capture.made_in_gaps), (Some(100), Some(11)));
    assert_eq!(capture.edges.len(), 89);
    assert_eq!(capture.gaps.iter().map(|gap| gap.moved).collect::<Vec<_>>(), [false, true, false]);
    let second = capture.gaps[1];
    assert_eq!((second.start_ns, second.end_ns), (2_000_000 + 20 * 500_000, 15_000_000));
}

#[test]
fn what_came_between_two_looks_is_not_lost_in_the_second() {
    let mut told = told(1..=10);
    told.next = 5;
    let (capture, _) = collect(&mut told, "gpio:x/1", &ticking(), LIMITS);
    assert_eq!((capture.edges.len(), capture.made_in_gaps), (5, Some(0)));
}

#[test]
fn a_chip_that_goes_ends_the_capture_and_keeps_what_was_seen() {
    let gone = Told { end: Err("gone".to_owned()), ..told(1..=10) };
    let (capture, ended) = collected(gone);
    assert_eq!((capture.edges.len(), ended.as_deref()), (10, Some("gone")));
    assert_eq!(capture.end_ns, 7_000_000);
}

#[test]
fn a_full_room_ends_it_and_says_so() {
    let (capture, _) = collected(told(1..=5_000));
    assert!(capture.is_full && capture.edges.len() == LIMITS.edges_max);
}

#[test]
fn a_missing_chip_is_answered_with_those_there_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let devices = folder.path().join("sys/bus/gpio/devices");
    for chip in ["gpiochip0", "gpiochip4"] {
        fs::create_dir_all(devices.join(chip)).expect("a folder");
    }
    let open = |root: &Path| OutputLine::open("gpiochip7", "1", &Tree::under(root));
    let said = open(folder.path()).expect_err("absent").to_string();
    assert_eq!(said, "there is no GPIO chip gpiochip7; there are gpiochip0, gpiochip4");
    let said = open(Path::new("/nowhere")).expect_err("absent").to_string();
    assert_eq!(
        said,
        "there is no GPIO chip gpiochip7: the system has none. Without hardware, use memory:NAME"
    );
}

#[test]
fn no_permission_names_the_group() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir_all(folder.path().join("etc")).expect("a folder");
    fs::write(folder.path().join("etc/group"), "root:x:0:\ngpio:x:997:pi\n").expect("written");
    let tree = Tree::under(folder.path());
    assert!(remedy(997, &tree).contains("usermod -aG gpio"));
    assert!(remedy(0, &tree).contains("only root may"));
}
