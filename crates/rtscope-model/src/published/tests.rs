use super::*;

fn table(entry: &str) -> Result<PublishedTable, String> {
    let text =
        format!("name = 'x'\ntitle = 'a document'\n[[published]]\nsource = 'page 3'\n{entry}\n");
    PublishedTable::parse("x.toml", &text).map_err(|error| error.to_string())
}

#[test]
fn every_statistic_has_a_name_that_reads_back() {
    let more = ["p50", "p99.99", "above 1ms", "above 70us"];
    for name in NAMED.iter().map(|(name, _)| *name).chain(more) {
        assert_eq!(
            name.parse::<PublishedStatistic>().map(|one| one.to_string()),
            Ok(name.to_owned())
        );
    }
}

#[test]
fn figures_have_any_statistic_in_its_own_unit() {
    let figures = [
        "mean = '17us', missed = 13, max_frequency = '50 kHz', branch_miss_rate = '24.03%'",
        "bandwidth = '621.6Mbit/s', cycles = '14,242,796,186', cpus_used = 0.994",
        "'above 1ms' = 13, p50 = '400us'",
    ];
    let read = table(&format!("figures = {{ {} }}", figures.join(", ")));
    let entry = &read.expect("a table").published[0];
    let values: Vec<f64> = entry.figures.0.iter().map(|(_, amount)| amount.value).collect();
    let expected = [17e3, 400e3, 13.0, 13.0, 14_242_796_186.0, 0.994, 0.2403, 50e3, 621.6e6];
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!((value / expected - 1.0).abs() < 1e-12, "{value} is not {expected}");
    }
    assert_eq!(entry.figures.0[0].1.alike(3_456.0), "3.46us");
    assert_eq!(entry.figures.0[7].1.alike(950.0), "0.95 kHz");
    assert_eq!(entry.figures.0[3].1.alike(4.0), "4");
}

#[test]
fn mistakes_are_told_with_their_line() {
    let said = |entry: &str| table(entry).expect_err(entry);
    for (entry, line, part) in [
        ("figures = { maxx = '3us' }", 5, "did you mean \"max\"?"),
        ("figures = { max = '3kHz' }", 5, "a time, for example"),
        ("figures = { max = 3 }", 5, "a time, for example"),
        ("figures = { bandwidth = '3us' }", 5, "Mbit/s"),
        ("figures = { missed = '3us' }", 5, "without a unit"),
        ("figures = { max = '-3us' }", 5, "is not a valid value here"),
        ("\nfigures = { 'above x' = 3 }", 6, "above x"),
        ("kernel = 'rt'", 5, "`stock` or `real-time`"),
        ("lod = 'none'", 5, "did you mean \"load\"?"),
        ("why = 'x'", 3, "or the reason why they are missing"),
        ("figures = { max = '3us' }\nmissing = 'not there'", 3, "needs figures, or the reason"),
    ] {
        let said = said(entry);
        assert!(said.starts_with(&format!("x.toml:{line}:")), "{entry}: {said}");
        assert!(said.contains(part), "{entry}: {said}");
    }
}

#[test]
fn all_mistakes_of_a_table_are_told_at_once() {
    let said = table(
        "figures = { bandwidth = '3us', cpu_load = '24%', foo = 1 }\nbogus = 1\n\
         [[published]]\nfigures = { max = '3us' }\n\
         [[published]]\nsource = 'page 4'\nkernel = 'rt'\nfigures = { max = '3us' }",
    );
    let said = said.expect_err("refused");
    let expected = [
        "x.toml:5: bandwidth: \"3us\" is not a valid value here",
        "x.toml:5: \"foo\" is not a statistic",
        "x.toml:6: unknown key `bogus`",
        "x.toml:7: a published entry needs a source",
        "x.toml:11: unknown value `rt`",
    ];
    for part in expected {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().count(), expected.len(), "{said}");
}

#[test]
fn an_entry_of_an_earlier_version_is_read() {
    let read = table("phase = 'idle'\nreal_time = false\nmax = '1152us'").expect("a table");
    let entry = &read.published[0];
    assert_eq!((entry.subject.as_deref(), entry.kernel), (Some("idle"), Some(KernelKind::Stock)));
    let (statistic, amount) = &entry.figures.0[0];
    assert_eq!((statistic.to_string().as_str(), amount.text.as_str()), ("max", "1152us"));
    assert_eq!(amount.alike(9_000.0), "9us");
}

#[test]
fn an_entry_is_written_and_read_back_as_toml_and_json() {
    let read =
        table("subject = 'a'\nthread = 2\npolicy = 'fifo'\nfigures = { p99 = '3us', missed = 1 }");
    let entry = read.expect("a table").published.remove(0);
    let toml = toml::to_string(&entry).expect("text");
    assert_eq!(toml::from_str::<Published>(&toml).as_ref(), Ok(&entry));
    let json = serde_json::to_string(&entry).expect("text");
    assert_eq!(serde_json::from_str::<Published>(&json).expect("an entry"), entry);
}
