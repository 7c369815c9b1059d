//! What names places, and what places and those who hand them out answer.

use std::{collections::BTreeMap, path::Path, time::Duration};

use rtscope_fleet::{
    agent::JobState,
    facts::Facts,
    hold,
    journal::jobs_of,
    labgrid::{ListedPlace, PlaceAnswer},
    parcel::RecordManifest,
    places::{self, FleetPlace, Reach},
    selector::Selector,
    slurm::{ListedNode, QueuedJob},
};
use rtscope_model::printable;

use super::{parts, pipe};

/// Reads bytes as files and answers, each under a line `== NAME`.
///
/// # Panics
///
/// When a text has characters that a terminal obeys, a place's name is none of a folder, an address could be an option
/// of ssh, or a manifest that passes its check leaves its folder.
pub fn places(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let files: BTreeMap<&str, &str> = parts(&text).collect();
    let selector = files.get("selector").and_then(|text| selector_of(text.trim_end()));
    for (name, content) in files {
        match name {
            "places.toml" => file_of_places(content, selector.as_ref()),
            "labgrid" => listed_by_labgrid(content),
            "labgrid-place" => place_of_labgrid(content),
            "scontrol" => content.lines().filter_map(ListedNode::read).for_each(|node| {
                assert!(node.tags.iter().all(|tag| Selector::is_tag(tag)));
                pipe::check_text(&node.name);
                pipe::check_text(&node.unfit().unwrap_or_default());
            }),
            "squeue" => content
                .lines()
                .filter_map(QueuedJob::read)
                .for_each(|job| pipe::check_text(&job.holder())),
            "look" => facts(content),
            "lease" => drop(hold::left_of(content, "job", "boot", Duration::from_secs(100))),
            "steps" => jobs_of(content).values().flatten().for_each(|job| {
                [&job.name, &job.machine, &job.kernel]
                    .into_iter()
                    .for_each(|text| pipe::check_text(text));
                let _ = job.is_open();
            }),
            "state" => drop(printable::from_json::<JobState>(content)),
            "manifest" => manifest(content),
            _ => {}
        }
    }
}

fn selector_of(text: &str) -> Option<Selector> {
    let read: Selector = text.parse().ok()?;
    assert_eq!(read.to_string().parse().as_ref(), Ok(&read));
    Some(read)
}

fn file_of_places(text: &str, selector: Option<&Selector>) {
    let Ok(read) = places::parse(Path::new("places.toml"), text) else { return };
    for place in &read.named {
        check_place(place);
        let _ = selector.is_some_and(|selector| selector.selects(place));
    }
}

fn check_place(place: &FleetPlace) {
    assert!(places::is_name(&place.name) && !place.name.contains('/'), "{place:?}");
    assert!(place.folder.as_ref().is_none_or(|folder| folder.starts_with('/')), "{place:?}");
    check_reach(&place.reach);
}

fn check_reach(reach: &Reach) {
    if let Reach::Ssh { target, .. } = reach {
        assert!(!target.is_empty() && !target.starts_with('-'), "{target:?}");
    }
}

fn listed_by_labgrid(text: &str) {
    let Ok(listed) = printable::from_json::<Vec<ListedPlace>>(text) else { return };
    for place in listed {
        assert!(place.tags().iter().all(|tag| Selector::is_tag(tag)));
        pipe::check_text(&place.name);
    }
}

fn place_of_labgrid(text: &str) {
    let Ok(answer) = printable::from_json::<PlaceAnswer>(text) else { return };
    match answer.reach() {
        Ok(reach) => check_reach(&reach),
        Err(error) => pipe::check_text(&error.to_string()),
    }
}

fn facts(text: &str) {
    let facts = Facts::read(text);
    let model = facts.model.unwrap_or_default();
    let holder = facts.held.map(|(holder, _)| holder).unwrap_or_default();
    [facts.machine, facts.kernel, model, holder].iter().for_each(|text| pipe::check_text(text));
}

fn manifest(text: &str) {
    let Ok(read) = serde_json::from_str::<RecordManifest>(text) else { return };
    if read.check().is_ok() {
        for file in &read.files {
            let is_inside = file.path.split('/').all(|part| !["", ".", ".."].contains(&part));
            assert!(is_inside, "{file:?}");
        }
    }
}
