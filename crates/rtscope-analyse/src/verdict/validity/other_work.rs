//! Rules about CPU time that was not rtscope's: whether a phase without a load was at rest, and
//! whether a load had the machine to itself.

use rtscope_model::{
    cpu::CpuSet,
    event::Event,
    finding::{Finding, Weight},
    other_work::OtherWork,
    time::Nanos,
};

use super::{Scene, listed};

/// Part of a measured CPU that others may use at rest without keeping a run from a Pass. A desktop
/// without anything to do uses 1 to 5 % of a CPU, a browser that plays a film more than 10 %.
const REST_SHARE: f64 = 0.10;

/// Part of a measured CPU from which others are named: more than what services in the background do.
const NAMED_SHARE: f64 = 0.03;

/// Part of all CPUs' time that others, or kernel threads, may use before they are taken for a load of
/// the memory and caches that measured CPUs share.
const MACHINE_SHARE: f64 = 0.25;

/// Less CPU time than this proves nothing: it is some of the kernel's clock ticks.
const PROVEN: Nanos = Nanos::from_ms(100);

/// Others used the CPUs in a phase that has no load.
pub(super) fn not_at_rest(scene: &Scene) -> Option<Finding> {
    let (mut weight, mut named) = (None, Vec::new());
    let places = listed(works(scene, false).filter_map(|work| {
        let (name, worst) = (scene.cell_name(work.cell), rest_weight(scene, work)?);
        weight = weight.max(Some(worst));
        named.push(work);
        Some(format!("{name} ({})", work_text(work, &measured(scene, work.cell))))
    }))?;
    let text = format!("the machine was not at rest in phases without a load: {places}");
    let advice = "stop these processes, or keep them off the measured CPUs (isolcpus, cpusets)";
    Some(Finding::new("not-at-rest", weight?, text).advise(also_other_rtscope(&named, advice)))
}

/// How a phase without a load is judged; none when it was at rest.
fn rest_weight(scene: &Scene, work: &OtherWork) -> Option<Weight> {
    let share = work.others_share_of(&measured(scene, work.cell));
    let others = work.others_ns >= PROVEN.0;
    let kernel = work.kernel_ns >= PROVEN.0 && work.kernel_share() > MACHINE_SHARE;
    if others && (share > REST_SHARE || work.others_share() > MACHINE_SHARE) {
        return Some(Weight::PreventsPass);
    }
    (others && share > NAMED_SHARE || kernel).then_some(Weight::Warning)
}

/// Others used the CPUs beside a load: its figures are those of both.
pub(super) fn foreign_work(scene: &Scene) -> Option<Finding> {
    let much: Vec<&OtherWork> = works(scene, true)
        .filter(|work| work.others_ns >= PROVEN.0 && work.others_share() > REST_SHARE)
        .collect();
    let places = listed(much.iter().map(|work| {
        format!("{} ({})", scene.cell_name(work.cell), work_text(work, &CpuSet::default()))
    }))?;
    let text = format!("other processes used the CPUs besides the loads: {places}");
    let advice =
        "stop these processes, because they change the latencies and the rates of the loads";
    let advice = also_other_rtscope(&much, advice);
    Some(Finding::new("foreign-work", Weight::Warning, text).advise(advice))
}

/// The advice, and more if another rtscope was among the others: its loads are `load:NAME`.
fn also_other_rtscope(works: &[&OtherWork], advice: &str) -> String {
    let is_rtscope = |name: &str| name == "rtscope" || name.starts_with("load:");
    let mut processes = works.iter().flat_map(|work| &work.processes);
    match processes.any(|process| is_rtscope(&process.name)) {
        true => format!("another rtscope was running: measure when none is. Also, {advice}"),
        false => advice.to_owned(),
    }
}

/// A phase of which the record doesn't say what others did. Runs that seal their whole files always say it;
/// older ones may not.
pub(super) fn missing(scene: &Scene) -> Option<Finding> {
    let events = || scene.record.events.iter().map(|stamped| &stamped.event);
    let promises =
        |event: &Event| matches!(event, Event::RunEnded { whole, .. } if !whole.is_empty());
    if !events().any(promises) {
        return None;
    }
    let is_told = |wanted: u32| {
        events().any(|event| matches!(event, Event::OtherWork(work) if work.cell == wanted))
    };
    let places = listed(events().filter_map(|event| match event {
        // Without bounds it ended before it counted.
        Event::PhaseEnded { cell, bounds: Some(_), .. } if !is_told(*cell) => {
            Some(scene.cell_name(*cell).to_owned())
        }
        _ => None,
    }))?;
    let text = format!("the record doesn't say what other processes did in: {places}");
    let advice = "use the record as the run wrote it, or measure where /proc/stat can be read";
    Some(Finding::new("other-work-missing", Weight::PreventsPass, text).advise(advice))
}

/// What others did in the phases that have loads, or in those without.
fn works<'a>(scene: &Scene<'a>, loaded: bool) -> impl Iterator<Item = &'a OtherWork> {
    let record = scene.record;
    let has_loads = move |cell: u32| {
        record.plan.phases.get(cell as usize).is_some_and(|phase| !phase.loads.is_empty())
    };
    let works = record.events.iter().filter_map(|stamped| match &stamped.event {
        Event::OtherWork(work) => Some(work),
        _ => None,
    });
    works.filter(move |work| has_loads(work.cell) == loaded)
}

/// The CPUs that the sampling threads of a cell may run on.
fn measured(scene: &Scene, cell: u32) -> CpuSet {
    scene.threads_of(cell).flat_map(|thread| thread.found.cpus.iter()).collect()
}

/// `others used 97 % of all CPUs and 98 % of the busiest measured CPU: stress (812) 9.7 s, ...`.
fn work_text(work: &OtherWork, measured: &CpuSet) -> String {
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let mut text = format!("others used {} of all CPUs", percent(work.others_share()));
    if !measured.is_empty() {
        let share = percent(work.others_share_of(measured));
        text += &format!(" and {share} of the busiest measured CPU");
    }
    if work.kernel_share() > MACHINE_SHARE {
        text += &format!(", kernel threads {}", percent(work.kernel_share()));
    }
    let total_ns = work.others_ns + work.kernel_ns;
    // A hundredth of it is not worth a name.
    let large = work.processes.iter().filter(|process| process.cpu_ns * 100 > total_ns);
    let mut named: Vec<String> = large
        .map(|process| format!("{} ({}) {}", process.name, process.pid, Nanos(process.cpu_ns)))
        .collect();
    let known_ns: u64 =
        work.processes.iter().filter(|process| !process.kernel).map(|process| process.cpu_ns).sum();
    let unnamed_ns = work.others_ns.saturating_sub(known_ns);
    if unnamed_ns * 10 > total_ns {
        named.push(format!("all other processes {}", Nanos(unnamed_ns)));
    }
    format!("{text}: {}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use rtscope_model::{
        event::Bounds,
        other_work::{BusyCpu, BusyProcess},
    };

    use super::{
        super::tests::{all, good, only},
        *,
    };
    use crate::test_support::Run;

    const SPAN_NS: u64 = 2_000_000_000;

    /// A good run on CPUs 0 and 1 of three, in a cell of which others used parts of each CPU's time.
    fn used(cell: u32, percent: [u64; 3], names: &[(&str, u64)]) -> Run {
        let each = |percent: u64| percent * SPAN_NS / 100;
        let cpu = |(cpu, percent): (u32, &u64)| BusyCpu { cpu, threads_ns: each(*percent) };
        let process = |(pid, (name, percent)): (u32, &(&str, u64))| BusyProcess {
            pid,
            name: (*name).to_owned(),
            kernel: false,
            cpu_ns: each(*percent),
        };
        good().happens(Event::OtherWork(OtherWork {
            cell,
            span_ns: SPAN_NS,
            ours_ns: 0,
            kernel_ns: 0,
            others_ns: each(percent.iter().sum()),
            cpus: (0..).zip(&percent).map(cpu).collect(),
            processes: (10..).zip(names).map(process).collect(),
        }))
    }

    #[test]
    fn others_that_keep_the_cpus_busy_at_rest_are_named() {
        let run = used(0, [99, 98, 99], &[("stress", 150), ("cc1", 60), ("sshd", 1)]);
        assert_eq!(
            only(&run, "not-at-rest", Weight::PreventsPass),
            "the machine was not at rest in phases without a load: rest (others used 99 % of all \
             CPUs and 99 % of the busiest measured CPU: stress (10) 3 s, cc1 (11) 1.2 s, all other \
             processes 1.7 s)"
        );
    }

    #[test]
    fn another_rtscope_is_recognised_by_its_loads() {
        let advice = |cell: u32, names: &[(&str, u64)]| {
            let mut found = all(&used(cell, [60, 60, 60], names));
            found.pop().expect("a finding").advice
        };
        for cell in [0, 1] {
            for names in [[("load:message", 80), ("cc1", 90)], [("rtscope", 1), ("cc1", 90)]] {
                let other = advice(cell, &names);
                assert!(other.starts_with("another rtscope was running"), "{other}");
                assert!(other.contains("Also, stop these processes"), "{other}");
            }
            let cc1 = advice(cell, &[("cc1", 100)]);
            assert!(cc1.starts_with("stop these processes"), "{cc1}");
        }
    }

    #[test]
    fn what_a_desktop_does_in_the_background_is_rest() {
        assert_eq!(all(&used(0, [3, 1, 2], &[("gnome-shell", 6)])), []);
        // A busy CPU that is not measured, on a machine that does little else.
        assert_eq!(all(&used(0, [2, 2, 60], &[("make", 64)])), []);
    }

    #[test]
    fn the_bound_is_a_part_of_a_measured_cpu() {
        only(&used(0, [1, 9, 1], &[("a", 11)]), "not-at-rest", Weight::Warning);
        only(&used(0, [1, 11, 1], &[("a", 13)]), "not-at-rest", Weight::PreventsPass);
        // Nothing on the measured CPUs, but the machine is not at rest.
        only(&used(0, [1, 1, 90], &[("a", 92)]), "not-at-rest", Weight::PreventsPass);
    }

    #[test]
    fn beside_a_load_others_are_a_warning() {
        let text = only(&used(1, [50, 50, 50], &[("make", 150)]), "foreign-work", Weight::Warning);
        assert!(text.contains("busy (others used 50 % of all CPUs: make (10) 3 s)"), "{text}");
        assert_eq!(all(&used(1, [5, 5, 5], &[("make", 15)])), []);
    }

    #[test]
    fn a_record_that_lost_what_others_did_is_told() {
        let sealed = |run: Run| {
            run.edit(|event| match event {
                Event::PhaseEnded { bounds, .. } => {
                    *bounds = Some(Bounds { from_ns: 0, to_ns: 1 });
                }
                Event::RunEnded { whole, .. } => drop(whole.insert("plan.toml".to_owned(), 1)),
                _ => {}
            })
        };
        let complete = used(0, [0, 0, 0], &[])
            .happens(Event::OtherWork(OtherWork { cell: 1, ..OtherWork::default() }));
        assert_eq!(all(&sealed(complete)), []);
        let text =
            only(&sealed(used(0, [0, 0, 0], &[])), "other-work-missing", Weight::PreventsPass);
        assert_eq!(text, "the record doesn't say what other processes did in: busy");
        // An older record promises nothing.
        assert_eq!(all(&used(0, [0, 0, 0], &[])), []);
    }

    #[test]
    fn small_shares_of_all_work_are_not_named() {
        let process =
            |pid, kernel, cpu_ns| BusyProcess { pid, name: "x".to_owned(), kernel, cpu_ns };
        let work = OtherWork {
            span_ns: SPAN_NS,
            kernel_ns: 900_000_000,
            others_ns: 100_000_000,
            cpus: vec![BusyCpu { cpu: 0, threads_ns: 1_000_000_000 }],
            // A hundredth of all is 10 ms: the second one is smaller. 95 ms of others have no name.
            processes: vec![process(7, true, 900_000_000), process(8, false, 5_000_000)],
            ..OtherWork::default()
        };
        let text = work_text(&work, &CpuSet::default());
        assert!(text.ends_with(", kernel threads 45 %: x (7) 900 ms"), "{text}");
        let more = OtherWork { kernel_ns: 800_000_000, ..work };
        assert!(work_text(&more, &CpuSet::default()).ends_with("all other processes 95 ms"));
    }

    #[test]
    fn a_few_clock_ticks_prove_nothing() {
        let run = used(0, [99, 99, 99], &[]).edit(|event| {
            if let Event::OtherWork(work) = event {
                work.span_ns /= 100;
                work.others_ns /= 100;
            }
        });
        assert_eq!(all(&run), []);
    }
}
