//! Stalls that are open when a cell begins or ends.

use super::*;

/// Four wake-ups at 10 us, one due at 14 ms that is 30 ms late, two more; meanwhile cells begin and end.
fn stalled(turns_ms: &[u64], stop_ms: Option<u64>) -> Vec<Step> {
    let mut steps = steps(&[10_000, 10_000, 10_000, 10_000, 30_000_000, 10_000, 10_000]);
    steps[4].turns_ns = turns_ms.iter().map(|ms| ms * 1_000_000).collect();
    steps[4].stop_ns = stop_ms.map(|ms| ms * 1_000_000);
    steps
}

/// Of a cell: planned, recorded, missed, the largest measured and omitted latency in ms, and the smallest
/// omitted.
fn figures(ran: &Ran, cell: u32) -> [u64; 6] {
    let slices = ran.slices.iter().filter(|slice| slice.scope == Scope::Cell(cell));
    slices.fold([0, 0, 0, 0, 0, u64::MAX], |[planned, recorded, missed, max, most, least], s| {
        let omitted = s.omitted_extent;
        [
            planned + s.planned,
            recorded + s.recorded,
            missed + s.missed,
            max.max(s.max_ns / 1_000_000),
            most.max(omitted.max_ns / 1_000_000),
            if s.missed > 0 { least.min(omitted.min_ns / 1_000_000) } else { least },
        ]
    })
}

#[test]
fn a_stall_that_is_open_when_its_cell_ends_is_a_latency_of_that_cell() {
    let ran = play(&beat(), &in_cell(None), stalled(&[20], None));
    // Due from 10 to 19 ms; those from 15 to 19 ms were swallowed and waited until 44 ms.
    assert_eq!(figures(&ran, 0), [10, 5, 5, 30, 29, 25]);
    assert!(ran.slices.iter().all(Slice::adds_up));
}

#[test]
fn a_stall_that_is_open_at_the_stop_is_a_latency_of_its_cell() {
    let ran = play(&beat(), &in_cell(None), stalled(&[], Some(20)));
    assert_eq!(figures(&ran, 0), [10, 5, 5, 30, 29, 25]);
}

#[test]
fn a_stall_before_a_cell_is_not_its_latency_but_what_it_swallowed_there_is_missed() {
    let ran = play(&beat(), &Shared::new(1), stalled(&[20], None));
    // Due from 20 ms on: 20 to 44 ms were swallowed, the last of them at its very expiry not.
    assert_eq!(figures(&ran, 0), [26, 2, 24, 0, 24, 1]);
}

#[test]
fn what_a_stall_before_a_cell_swallowed_waited_until_the_very_answer() {
    // A worse stall before it says nothing about this one: due at 52 ms, answered at 82.4 ms.
    let mut steps = steps(&[10_000, 40_000_000, 10_000, 30_400_000, 10_000]);
    steps[3].turns_ns = vec![60_000_000];
    let ran = play(&beat(), &Shared::new(1), steps);
    assert_eq!(figures(&ran, 0)[..3], [24, 1, 23]);
    let extent = ran.slices.iter().find(|slice| slice.missed == 23).expect("missed").omitted_extent;
    assert_eq!((extent.min_ns, extent.max_ns), (400_000, 22_400_000));
}

#[test]
fn a_cell_that_a_thread_slept_through_is_missed() {
    let shared = Shared::new(2);
    shared.enter(0, None);
    let ran = play(&beat(), &shared, stalled(&[20, 25, 30], None));
    assert_eq!(figures(&ran, 0), [10, 5, 5, 30, 29, 25]);
    assert_eq!(figures(&ran, 1), [5, 0, 5, 0, 19, 15]);
}

#[test]
fn a_relative_sleep_keeps_an_open_stall_too() {
    let relative = Beat { sleep: Sleep::Relative, ..beat() };
    let ran = play(&relative, &in_cell(None), stalled(&[20], None));
    assert_eq!(figures(&ran, 0), [5, 5, 0, 30, 0, u64::MAX]);
}

#[test]
fn a_thread_that_never_wakes_has_missed_the_whole_cell() {
    let shared = in_cell(None);
    shared.end_cell(1, 20 * INTERVAL_NS);
    let unanswered = |grid_ns| {
        let sampled = SlotOwner { thread: 3, origin_ns: 0, grid_ns, cells: &[7] };
        let mut cover = Cover::new(LAYOUT, 0);
        cover.start(10 * INTERVAL_NS);
        let mut slices = Vec::new();
        cover.close(&sampled, &shared, 500 * INTERVAL_NS, |slice| slices.push(slice));
        assert_eq!((slices.len(), slices[0].scope, slices[0].thread), (1, Scope::Cell(7), 3));
        let slice = &slices[0];
        assert!(slice.adds_up());
        (slice.planned, slice.missed, slice.omitted_extent.max_ns / INTERVAL_NS)
    };
    assert_eq!(unanswered(Some(INTERVAL_NS)), (10, 10, 490));
    assert_eq!(unanswered(None), (1, 1, 490));
}

/// Of a relative sampler: where it was asleep in a cell, and how long that lasted in the end.
fn asleep(ran: &Ran, cell: u32) -> Vec<(u64, u64, u64)> {
    let of_cell = |slice: &&Slice| slice.scope == Scope::Cell(cell) && slice.recorded == 0;
    let ms = |ns: u64| ns / 1_000_000;
    let told = |slice: &Slice| (slice.start_ns, slice.end_ns, slice.omitted_extent.max_ns);
    let slices = ran.slices.iter().filter(of_cell).map(told);
    slices.map(|(start, end, waited)| (ms(start), ms(end), ms(waited))).collect()
}

#[test]
fn a_relative_sampler_that_sleeps_into_a_cell_has_missed_one_activation_there() {
    let relative = Beat { sleep: Sleep::Relative, ..beat() };
    // Due before the cell, answered in it: the latency belongs to no cell.
    let ran = play(&relative, &Shared::new(1), stalled(&[20], None));
    let [(20, end_ms, waited_ms)] = asleep(&ran, 0)[..] else { panic!("{:?}", ran.slices) };
    let woke_ms = ran.slices[0].max_at_ns.saturating_add(ran.slices[0].max_ns) / 1_000_000;
    assert_eq!((end_ms, waited_ms), (woke_ms, woke_ms - 20), "until it woke");
    assert_eq!(figures(&ran, 0)[..3], [3, 2, 1]);
    // It sleeps through a second cell, and into a third.
    let shared = Shared::new(3);
    shared.enter(0, None);
    let ran = play(&relative, &shared, stalled(&[10, 15, 20, 25, 30], None));
    assert_eq!(figures(&ran, 0)[1], 5, "the stall is a latency of the first");
    assert_eq!(asleep(&ran, 0), []);
    assert_eq!(asleep(&ran, 1), [(15, 20, woke_ms - 15)]);
    assert_eq!(asleep(&ran, 2), [(25, 30, woke_ms - 25)]);
    assert!(ran.slices.iter().all(Slice::adds_up));
}

#[test]
fn a_relative_sampler_that_never_wakes_again_is_asleep_in_each_later_cell() {
    let shared = Shared::new(2);
    [0, 30].into_iter().for_each(|at_ms| {
        shared.enter(at_ms * INTERVAL_NS, None);
        shared.end_cell(shared.reign(), (at_ms + 20) * INTERVAL_NS);
    });
    let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns: None, cells: &[4, 5] };
    let mut cover = Cover::new(LAYOUT, 0);
    cover.start(10 * INTERVAL_NS);
    let mut slices = Vec::new();
    cover.close(&sampled, &shared, 100 * INTERVAL_NS, |slice| slices.push(slice));
    let told = slices.iter().map(|slice| {
        (slice.scope, slice.end_ns / INTERVAL_NS, slice.omitted_extent.max_ns / INTERVAL_NS)
    });
    let told: Vec<(Scope, u64, u64)> = told.collect();
    assert_eq!(told, [(Scope::Cell(4), 20, 90), (Scope::Cell(5), 50, 70)]);
}

#[test]
fn what_a_lost_thread_may_have_answered_is_not_called_unanswered() {
    let shared = in_cell(None);
    shared.end_cell(1, 200 * INTERVAL_NS);
    let unanswered = |grid_ns| {
        let sampled = SlotOwner { thread: 0, origin_ns: 0, grid_ns, cells: &[0] };
        let mut cover = Cover::new(LAYOUT, 0);
        cover.start(10 * INTERVAL_NS);
        // It was asked in the middle of an interval, and didn't answer.
        cover.unknown_until(&sampled, 150 * INTERVAL_NS + 300_000, INTERVAL_NS);
        let mut slices = Vec::new();
        cover.close(&sampled, &shared, 500 * INTERVAL_NS, |slice| slices.push(slice));
        let [slice] = &slices[..] else { panic!("{slices:?}") };
        (slice.start_ns, slice.missed, slice.omitted_extent.max_ns)
    };
    assert_eq!(unanswered(Some(INTERVAL_NS)), (151_000_000, 49, 349_000_000));
    // It may have slept for the whole interval since.
    assert_eq!(unanswered(None), (151_300_000, 1, 348_700_000));
}
