use rtscope_model::histogram::Layout;

use super::*;

fn latencies(us: u64) -> Histogram {
    let mut histogram = Histogram::new(Layout::default());
    (0..2000).for_each(|n| histogram.record(us * 900 + n * us));
    histogram
}

fn entry(kernel: usize, load: &str, seed: u64, p99_9_us: u64) -> Entry {
    Entry {
        kernel,
        load: load.to_owned(),
        seed,
        p99_9_ns: p99_9_us * 1000,
        max_ns: p99_9_us * 2000,
        recorded: 2000,
        missed: 0,
        histogram: latencies(p99_9_us),
        page: format!("{kernel}-{seed}/report.html"),
    }
}

fn comparison() -> LabComparison {
    LabComparison {
        plan: "x".to_owned(),
        title: "a <title>".to_owned(),
        time: Timing::Virtual { shift: 1 },
        kernels: vec!["stock".to_owned(), "rt".to_owned()],
        preemption: vec![Some(Preemption::Voluntary), Some(Preemption::RealTime)],
        loads: ["rest", "disk"].map(str::to_owned).to_vec(),
        load_lines: [("disk".to_owned(), "disk size=8MiB".to_owned())].into(),
        seeds: 2,
        unreached: Vec::new(),
        facts: vec![("stock".to_owned(), "6.1".to_owned())],
        warnings: vec!["rt: preempt=full had no effect".to_owned()],
        entries: vec![
            entry(0, "rest", 1, 9),
            entry(0, "rest", 2, 9),
            entry(0, "disk", 1, 60),
            entry(0, "disk", 2, 70),
            entry(1, "rest", 1, 8),
            entry(1, "rest", 2, 8),
            entry(1, "disk", 1, 9),
            entry(1, "disk", 2, 11),
        ],
        required: vec![KernelRequirement {
            kernel: "stock".to_owned(),
            load: "disk".to_owned(),
            requirement: "max < 50us".to_owned(),
            verdict: Verdict::Fail,
            seen: "the maximum is 140 us".to_owned(),
            figure: None,
        }],
        failures: vec![("old seed 1".to_owned(), "the kernel gave up".to_owned())],
        published: Vec::new(),
        beside: Vec::new(),
        traces: Vec::new(),
        causes: Vec::new(),
    }
}

/// Kernels a, b and so on, with the 99.9th percentiles in us of their seeds under each load.
pub(super) fn comparison_of(loads: &[(&str, &[&[u64]])]) -> LabComparison {
    let mut all = comparison();
    let count = loads.iter().map(|(_, sides)| sides.len()).max().unwrap_or(0);
    let name = |at: usize| char::from(b'a' + at as u8).to_string();
    all.kernels = (0..count).map(name).collect();
    all.preemption = vec![None; count];
    all.loads = loads.iter().map(|(load, _)| (*load).to_owned()).collect();
    all.seeds = loads.iter().flat_map(|(_, s)| s.iter().map(|s| s.len())).max().unwrap_or(0);
    all.entries = Vec::new();
    for (load, sides) in loads {
        for (kernel, seeds) in sides.iter().enumerate() {
            let seeds = (1..).zip(seeds.iter());
            all.entries.extend(seeds.map(|(seed, &us)| entry(kernel, load, seed, us)));
        }
    }
    all
}

#[test]
fn the_headline_names_only_what_is_told_apart() {
    let (low, high): (&[u64], &[u64]) = (&[20, 21, 20, 22, 20], &[460, 470, 450, 455, 465]);
    let near: &[u64] = &[450, 480, 455, 460, 470];
    let all = comparison_of(&[("rest", &[low, low, low]), ("disk", &[low, high, near])]);
    assert_eq!(
        headline(&all),
        "Under disk, 99.9 % of wake-ups within 20.0 us in a and within 460.0 us in b: 23 times"
    );
    let told = |pair: &KernelPair| (pair.better.clone() + &pair.worse, pair.apart);
    let disk: Vec<_> = apart::pairs(&all).iter().filter(|p| p.load == "disk").map(told).collect();
    let expected = [("ab", true), ("ac", true), ("bc", false)];
    assert_eq!(disk, expected.map(|(pair, apart)| (pair.to_owned(), apart)));
    let once = comparison_of(&[("disk", &[&[20], &[460]])]);
    assert!(headline(&once).ends_with("23 times; one seed can't separate kernels: try --seeds 5"));
}

#[test]
fn a_place_has_the_median_percentile_of_its_seeds_and_their_largest_maximum() {
    let all = comparison();
    assert_eq!(p99_9_and_max(&all, 0, "disk"), Some((65_000, 140_000)));
    assert_eq!(p99_9_and_max(&all, 0, "cpu"), None);
    assert!(page(&all).contains("<b>65.0</b><small>60.0 to 70.0</small><small>max <strong>140.0"));
}

#[test]
fn a_percentile_of_too_few_wake_ups_is_said_to_be_unbounded() {
    let mut all = comparison_of(&[("rest", &[&[9], &[9]])]);
    assert!(unbounded(&all).expect("too few").contains("2,000 wake-ups are too few"));
    all.entries.iter_mut().for_each(|entry| entry.recorded = 3_687);
    assert!(unbounded(&all).expect("too few").contains("3,688 over all seeds"));
    all.entries.iter_mut().for_each(|entry| entry.recorded = 3_688);
    assert_eq!(unbounded(&all), None);
}

#[test]
fn the_page_has_every_figure_and_escapes_what_it_is_given() {
    let page = page(&comparison());
    for part in [
        "a &#60;title&#62;",
        "0-1/report.html",
        "1-2/report.html",
        "the kernel gave up",
        "max &#60; 50us",
        "the maximum is 140 us",
        "preemption: voluntary",
        "preemption: PREEMPT_RT",
        "rt: preempt=full had no effect",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert!(!page.contains("a <title>"));
    assert_eq!(
        page.matches("class=\"plot\" id=\"plot-kernels-").count(),
        2,
        "a plot for each load"
    );
    assert!(page.contains("disk size=8MiB") && page.contains("The guest has no disk"));
    assert!(
        page.contains("caches") && page.contains("500 million"),
        "what virtual time can't show"
    );
    assert!(headline(&comparison()).contains("within 10.0 us in rt and within 65.0 us in stock"));
}

#[test]
fn what_was_not_measured_is_not_spoken_of() {
    let mut all = comparison();
    all.loads.push("fork".to_owned());
    all.unreached.push((1, "fork".to_owned()));
    all.entries.retain(|entry| entry.kernel == 0 || entry.seed == 1);
    assert!(headline(&all).ends_with("(stock: 2 of 3 loads; rt: 2 of 3 loads)"));
    let shown = page(&all);
    for part in ["<th scope=\"row\">fork</th>", "not reached", "no record", "1 of 2 seeds"] {
        assert!(shown.contains(part), "{part} is missing");
    }
    all.kernels.truncate(1);
    all.entries.retain(|entry| entry.kernel == 0);
    let said = headline(&all);
    assert!(said.ends_with("70.0 us under all measured loads (only 2 of 3 loads)"), "{said}");
    all.loads.pop();
    assert!(headline(&all).ends_with("under every load"));
    all.entries.retain(|entry| entry.seed == 1 || entry.load == "disk");
    assert!(headline(&all).contains("1 of 2 seeds under some loads"));
}

#[test]
fn heat_is_logarithmic_from_the_coldest_to_the_hottest() {
    assert_eq!((heat(10, 10, 1000), heat(100, 10, 1000), heat(1000, 10, 1000)), (0, 31, 62));
    assert_eq!(heat(10, 10, 10), 0);
    // 9.7 and 10.0 us are no two colours.
    assert!((1..5).contains(&heat(10_000, 9_700, 10_000)));
    assert_eq!(heat(20, 10, 20), 62);
}

#[test]
fn virtual_time_and_a_disk_in_memory_are_said_where_the_figures_are() {
    let mut all = comparison();
    let [time, disk] = conditions(&all)[..] else { panic!("{:?}", conditions(&all)) };
    assert!(time.contains("virtual") && disk.contains("tmpfs"));
    all.load_lines.clear();
    assert_eq!(conditions(&all), [time]);
    all.time = Timing::Wall;
    assert!(conditions(&all).is_empty());
}
