//! `rtscope ps --set`: chrt and taskset in one, with a look before and a look after.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::Context;
use rtscope_measure::{
    environment,
    ps::{self, ChangeError, WantedChange},
};
use rtscope_model::schedule::{Placement, Policy};
use rtscope_sys::{sched, tree::Tree};

use super::Args;
use crate::{
    cli::{Refused, print},
    exit,
};

pub(super) fn main(args: &Args, tid: u32) -> anyhow::Result<ExitCode> {
    let choice = match args.policy {
        Some(choice) if choice.priority.is_some() => Some(choice.with_priority(args.priority)?),
        choice => choice,
    };
    let asked = WantedChange {
        policy: choice.map(|choice| choice.policy),
        priority: choice.and_then(|choice| choice.priority).or(args.priority),
        nice: args.nice,
        cpus: args.cpus.clone(),
    };
    if asked == WantedChange::default() {
        let text = "--set: say what to change: --policy, --priority, --nice or --cpus";
        return Err(Refused(text.to_owned()).into());
    }
    let number = i32::try_from(tid).ok().filter(|tid| *tid > 0);
    let number = number.ok_or_else(|| Refused(format!("--set {tid}: not a thread ID")))?;
    if !Path::new(&format!("/proc/{tid}")).exists() {
        return Err(Refused(format!("--set {tid}: there is no thread with this ID")).into());
    }
    if let Some(asked) = &args.cpus {
        let online = environment::online(&Tree::default());
        if asked.common(&online).is_empty() {
            let text = format!("--cpus {asked}: not online; this machine has {}", online.named());
            return Err(Refused(text).into());
        }
    }
    let before = sched::placement(number).with_context(|| format!("can't inspect thread {tid}"))?;
    let wanted = asked.whole(&before).map_err(|problem| match problem {
        ChangeError::Contradiction(text) => Refused(text).into(),
        other => anyhow::Error::from(other),
    })?;
    if !args.force
        && let Some(why) = danger(args, tid, &wanted)
    {
        return Err(Refused(format!(
            "{why}; nothing was changed (--force changes the thread anyway)"
        ))
        .into());
    }
    let changed = ps::change(number, &before, &wanted)?;
    let sound = changed.found == changed.asked;
    if args.json {
        let document = serde_json::json!({
            "tid": tid, "before": changed.before, "asked": changed.asked, "found": changed.found,
            "as_asked": sound,
        });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        let back = back(tid, &changed.before);
        print(&format!("{tid}: {} -> {}\nTo go back: {back}\n", changed.before, changed.found))?;
        if !sound {
            note!("rtscope: the kernel did not apply {} as requested", changed.asked);
        }
    }
    Ok(ExitCode::from(if sound { exit::PASS } else { exit::ERROR }))
}

/// Why the change would starve others, after a look at all threads.
fn danger(args: &Args, tid: u32, wanted: &Placement) -> Option<String> {
    let tree = Tree::default();
    let earlier = ps::threads(&tree);
    let start = Instant::now();
    std::thread::sleep(Duration::from_nanos(args.look.0));
    let mut threads = ps::threads(&tree);
    ps::compare(&earlier, &mut threads, start.elapsed().as_nanos() as u64);
    let online = environment::online(&tree);
    ps::starvation(&threads, tid, wanted, environment::throttling(&tree), &online)
}

/// The command that undoes a change: what isn't named would stay as it is now.
fn back(tid: u32, before: &Placement) -> String {
    let mut text =
        format!("rtscope ps --set {tid} --policy {} --cpus {}", before.policy, before.cpus);
    if before.policy.has_priority() {
        text += &format!(" --priority {}", before.priority);
    } else if matches!(before.policy, Policy::Other | Policy::Batch) {
        text += &format!(" --nice {}", before.nice);
    }
    text
}
