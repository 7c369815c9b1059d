//! Where expiries fall, and what a late wake-up swallows where they were moved.

use rtscope_model::{
    plan::{Sampler, Spread},
    time::Nanos,
};

use super::*;

/// Wake-ups of 500 us by the 64th part of a tick of 4 ms in which they were due. One swallows three.
fn due_in_ticks(spread: Spread) -> Vec<u32> {
    const TICK_NS: u64 = 4_000_000;
    let sampler = Sampler { interval: Nanos::from_us(500), spread, ..Sampler::default() };
    let offset = match spread {
        Spread::Part(percent) => Offset::Spread { percent: percent.into(), seed: 1 },
        _ => Offset::None,
    };
    let beat = Beat { interval_ns: sampler.interval_of(0).0, offset, ..beat() };
    let (mut ring, mut samples) = rtrb::RingBuffer::new(4_000);
    let mut latencies_ns = vec![10_000; 3_997];
    latencies_ns[2_000] = 1_600_000;
    let ran = play_raw(&beat, &in_cell(None), steps(&latencies_ns), Some(&mut ring));
    // With offsets the stall may swallow one more or less.
    let missed = ran.total(|s| s.missed);
    assert!((2..=4).contains(&missed) && (missed == 3 || offset != Offset::None));
    let planned = (ran.total(|s| s.planned), ran.total(|s| s.recorded));
    assert_eq!(planned, (3_997 + missed, 3_997));
    assert!(ran.slices.iter().all(Slice::adds_up));
    let mut due = vec![0; 64];
    while let Ok(sample) = samples.pop() {
        due[(sample.expiry_ns % TICK_NS * 64 / TICK_NS) as usize] += 1;
    }
    due
}

#[test]
fn a_spread_grid_visits_every_phase_of_the_tick_evenly() {
    let visited = |due: &[u32]| due.iter().filter(|count| **count > 0).count();
    assert_eq!(visited(&due_in_ticks(Spread::None)), 8);
    let due = due_in_ticks(Spread::Even);
    assert_eq!(visited(&due), 64);
    // 4,000 in 64 parts are 62.5 in each.
    assert!(due.iter().all(|count| (56..=69).contains(count)), "{due:?}");
}

#[test]
fn a_pseudo_random_spread_visits_every_phase_of_the_tick() {
    let due = due_in_ticks(Spread::Part(100));
    // 3,997 in 64 parts: the standard deviation of a part is 7.8.
    assert!(due.iter().all(|count| (31..=94).contains(count)), "{due:?}");
    // A tenth of 500 us behind each of 8 instants: 1 part of 8 and the beginning of the next.
    let visited = due_in_ticks(Spread::Part(10)).iter().filter(|count| **count > 0).count();
    assert_eq!(visited, 8);
}

#[test]
fn a_stall_swallows_the_expiries_before_it_wherever_they_were_moved_to() {
    for seed in 0..200 {
        let beat = Beat { offset: Offset::Spread { percent: 100, seed }, ..beat() };
        let ran = play(&beat, &in_cell(None), with_stall(5_300_000));
        let due_ns = |nth: u64| beat.due_ns(beat.first_ns + nth * INTERVAL_NS);
        let woke_ns = due_ns(10) + 5_300_000;
        let waited_ns: Vec<u64> =
            (11..40).map(due_ns).filter(|due| *due < woke_ns).map(|due| woke_ns - due).collect();
        // A second slice may hold the activation that is due after the stop: here nobody waits for it.
        let slice = &ran.slices[0];
        assert_eq!(slice.missed, waited_ns.len() as u64);
        assert_eq!(slice.omitted_extent.sum_ns, waited_ns.iter().sum::<u64>());
        assert_eq!((slice.recorded, slice.max_at_ns), (21, due_ns(10)));
        assert!(slice.adds_up());
    }
}

#[test]
fn an_activation_that_is_due_after_the_stop_is_not_recorded() {
    let aimed = Beat { offset: Offset::Aimed { at_ns: 0 }, ..beat() };
    let ran = play(&aimed, &in_cell(None), steps(&[10_000; 3]));
    // The third was due at the end of the third interval, and answered in the fourth.
    assert_eq!((ran.total(|s| s.recorded), ran.total(|s| s.early)), (3, 0));
    assert_eq!(ran.slices[0].min_ns, 10_000);
}
