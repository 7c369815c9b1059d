//! Runs over months: an SQLite file with the figures and histograms of each cell of each run, so that a
//! series can be drawn without its records.

use std::path::{Path, PathBuf};

use anyhow::Context;
use rtscope_analyse::{
    judgement::{CellSummary, Judgement},
    statistics::quantile,
};
use rtscope_model::{
    event::Event,
    histogram::{Bin, Histogram, Layout, Unplaced},
    printable::printable,
    record::Record,
    verdict::{Statistic, Verdict},
};
use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

/// Version of the tables, kept in the file's `user_version`.
const VERSION: i32 = 4;

const TABLES: &str = "
CREATE TABLE run (
    id INTEGER PRIMARY KEY,
    started TEXT NOT NULL,
    host TEXT NOT NULL,
    kernel TEXT NOT NULL,
    plan TEXT NOT NULL,
    label TEXT NOT NULL,
    verdict TEXT NOT NULL,
    folder TEXT NOT NULL,
    UNIQUE (started, host, plan, label, folder)
);
CREATE TABLE cell (
    run INTEGER NOT NULL REFERENCES run (id) ON DELETE CASCADE,
    cell INTEGER NOT NULL,
    name TEXT NOT NULL,
    recorded INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    exposure_ns INTEGER NOT NULL,
    min_ns INTEGER NOT NULL,
    max_ns INTEGER NOT NULL,
    sum_ns TEXT NOT NULL,
    unit_ns INTEGER NOT NULL,
    exact INTEGER NOT NULL,
    bins TEXT NOT NULL,
    PRIMARY KEY (run, cell)
);
CREATE INDEX run_started ON run (started);
";

/// From version 1 to 2: what imports don't know, and what they count without a bucket.
const SINCE_1: &str = "
ALTER TABLE cell ADD COLUMN missed_is_known INTEGER NOT NULL DEFAULT 1;
ALTER TABLE cell ADD COLUMN unplaced INTEGER NOT NULL DEFAULT 0;
ALTER TABLE cell ADD COLUMN unplaced_from_ns INTEGER NOT NULL DEFAULT 0;
";

/// From version 2 to 3: where in a fleet a run was.
const SINCE_2: &str = "
ALTER TABLE run ADD COLUMN place TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN tags TEXT NOT NULL DEFAULT '';
ALTER TABLE run ADD COLUMN model TEXT NOT NULL DEFAULT '';
";

/// From version 3 to 4: how long an activation had waited at least that was never answered, if that is longer than each
/// latency.
const SINCE_3: &str = "
ALTER TABLE cell ADD COLUMN waited_ns INTEGER NOT NULL DEFAULT 0;
";

/// The file.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
}

/// A run of the history.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) started: String,
    pub(crate) host: String,
    pub(crate) kernel: String,
    pub(crate) plan: String,
    pub(crate) label: String,
    pub(crate) verdict: String,
    pub(crate) folder: String,
    /// In a fleet; empty for a run that belongs to none.
    pub(crate) place: RunPlace,
}

/// Where in a fleet a run was. All of it is empty for a run that belongs to none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunPlace {
    pub(crate) name: String,
    /// With blanks between them.
    pub(crate) tags: String,
    /// Of the device tree.
    pub(crate) model: String,
}

/// A cell of a run of the history.
#[derive(Clone, Debug)]
pub(crate) struct StoredCell {
    pub(crate) name: String,
    /// None where that is not known, as of imports.
    pub(crate) missed: Option<u64>,
    pub(crate) exposure_ns: u64,
    pub(crate) histogram: Histogram,
    /// How long an activation had waited at least that was never answered; none if a latency is longer.
    pub(crate) waited_ns: Option<u64>,
}

impl StoredCell {
    /// A figure; none where the histogram lacks it. Whether it is only a lower end: the maximum, if an activation was never
    /// answered.
    pub(crate) fn figure(&self, statistic: Statistic) -> Option<(u64, bool)> {
        match (statistic, self.waited_ns) {
            (Statistic::Max, Some(waited_ns)) => Some((waited_ns, true)),
            _ => quantile::statistic_ns(&self.histogram, statistic).map(|ns| (ns, false)),
        }
    }
}

/// Which runs: empty parts match all.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Wanted {
    /// Select runs on this host
    #[arg(long)]
    pub(crate) host: Option<String>,
    /// Select runs on a kernel whose release begins with this text
    #[arg(short, long)]
    pub(crate) kernel: Option<String>,
    /// Select runs of this plan
    #[arg(long)]
    pub(crate) plan: Option<String>,
    /// Select runs with this label
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// Select runs at this place of a fleet
    #[arg(long)]
    pub(crate) place: Option<String>,
    /// Select runs at places with this tag
    #[arg(long)]
    pub(crate) tag: Option<String>,
}

/// What became of a run that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    New(i64),
    /// It is there already.
    Known,
    /// It is there already, and has another label now.
    Relabelled(i64),
}

/// Where the history is when no file is named: `rtscope/history.sqlite` in the user's data folder.
pub(crate) fn default_file() -> anyhow::Result<PathBuf> {
    let of_home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let data = data.or_else(of_home);
    let data = data.context("neither XDG_DATA_HOME nor HOME is set: name a file with --store")?;
    Ok(data.join("rtscope/history.sqlite"))
}

/// Brings the tables up to date. Another process may just have done so.
fn renew(connection: &mut Connection) -> rusqlite::Result<()> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: i32 = change.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if version >= VERSION {
        return Ok(());
    }
    for step in
        [TABLES, SINCE_1, SINCE_2, SINCE_3].iter().skip(usize::try_from(version).unwrap_or(0))
    {
        change.execute_batch(step)?;
    }
    change.pragma_update(None, "user_version", VERSION)?;
    change.commit()
}

impl Store {
    /// Opens a file that is there; none if it isn't.
    pub(crate) fn open_known(file: &Path) -> anyhow::Result<Option<Store>> {
        if file.exists() { Store::open(file).map(Some) } else { Ok(None) }
    }

    /// Opens the file, or makes it.
    pub(crate) fn open(file: &Path) -> anyhow::Result<Store> {
        if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            crate::record::make_folder(folder)?;
        }
        let told = || format!("can't open the history {}", file.display());
        let mut connection = Connection::open(file).with_context(told)?;
        connection.pragma_update(None, "foreign_keys", true).with_context(told)?;
        let version: i32 = connection
            .pragma_query_value(None, "user_version", |row| row.get(0))
            .with_context(told)?;
        if !(0..=VERSION).contains(&version) {
            anyhow::bail!(
                "{} is of version {version}; this rtscope reads version {VERSION}",
                file.display()
            );
        }
        if version < VERSION {
            renew(&mut connection).with_context(told)?;
        }
        Ok(Store { connection })
    }

    /// Adds a run. A known one gets the label, if there is one. `at` is when an import was measured, where
    /// its file doesn't say it.
    pub(crate) fn add(
        &mut self,
        record: &Record,
        judgement: &Judgement,
        (label, place): (&str, &RunPlace),
        folder: &str,
        at: Option<jiff::civil::Date>,
    ) -> anyhow::Result<Added> {
        let started = record.events.iter().find_map(|stamped| match &stamped.event {
            Event::RunStarted { wall_clock, .. } => Some(wall_clock.as_str()),
            _ => None,
        });
        let started = started.context("the record does not say when it began")?;
        anyhow::ensure!(
            at.is_none() || record.is_imported(),
            "{folder} already contains its date: use --at only for imports"
        );
        let started = match at {
            Some(day) => format!("{day}T00:00:00Z"),
            None => measured_at(record).unwrap_or_else(|| started.to_owned()),
        };
        let machine = record.before.as_ref();
        let told = |fact: &str| told(record, fact).unwrap_or_default();
        let host = machine.map_or_else(|| told("host"), |machine| machine.host.clone());
        let kernel =
            machine.map_or_else(|| told("kernel"), |machine| machine.kernel.release.clone());
        let verdict = word(judgement.verdict);
        // It reads before it writes: nobody else may write in between.
        let change = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Older versions added a run again under another label: the row with this label comes first.
        let known = "SELECT id, label FROM run WHERE started = ?1 AND host = ?2 AND plan = ?3 AND folder = ?4
             ORDER BY label = ?5 DESC";
        let of = params![started, host, record.plan.name, folder, label];
        let known: Option<(i64, String)> =
            change.query_row(known, of, |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        if let Some((id, old)) = known {
            if label.is_empty() || label == old {
                return Ok(Added::Known);
            }
            change.execute("UPDATE run SET label = ?2 WHERE id = ?1", params![id, label])?;
            change.commit()?;
            return Ok(Added::Relabelled(id));
        }
        change.execute(
            "INSERT INTO run
                 (started, host, kernel, plan, label, verdict, folder, place, tags, model)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            params![
                started,
                host,
                kernel,
                record.plan.name,
                label,
                verdict,
                folder,
                place.name,
                place.tags,
                place.model
            ],
        )?;
        let id = change.last_insert_rowid();
        for cell in judgement.cells.iter().filter(|cell| cell.all.recorded > 0) {
            add_cell(&change, id, cell)?;
        }
        change.commit()?;
        Ok(Added::New(id))
    }

    /// Removes a run. Whether it was there.
    pub(crate) fn remove(&mut self, id: i64) -> anyhow::Result<bool> {
        Ok(self.connection.execute("DELETE FROM run WHERE id = ?1", [id])? > 0)
    }

    /// How many runs there are.
    pub(crate) fn count(&self) -> anyhow::Result<usize> {
        let count: i64 =
            self.connection.query_row("SELECT count(*) FROM run", [], |row| row.get(0))?;
        Ok(usize::try_from(count)?)
    }

    /// The names of all cells, each once.
    pub(crate) fn cell_names(&self) -> anyhow::Result<Vec<String>> {
        let mut query = self.connection.prepare("SELECT DISTINCT name FROM cell ORDER BY name")?;
        let names = query.query_map([], |row| row.get::<_, String>(0))?;
        Ok(names
            .map(|name| name.map(|name| printable(&name).into_owned()))
            .collect::<Result<_, _>>()?)
    }

    /// The runs that are wanted, the earliest first.
    pub(crate) fn list(&self, wanted: &Wanted) -> anyhow::Result<Vec<Entry>> {
        let mut query = self.connection.prepare(
            "SELECT id, started, host, kernel, plan, label, verdict, folder, place, tags, model FROM run
             WHERE (?1 IS NULL OR host = ?1)
               AND (?2 IS NULL OR substr(kernel, 1, length(?2)) = ?2)
               AND (?3 IS NULL OR plan = ?3)
               AND (?4 IS NULL OR label = ?4)
               AND (?5 IS NULL OR place = ?5)
               AND (?6 IS NULL OR instr(' ' || tags || ' ', ' ' || ?6 || ' ') > 0)
             ORDER BY started, id",
        )?;
        let Wanted { host, kernel, plan, label, place, tag } = wanted;
        let found = query.query_map(params![host, kernel, plan, label, place, tag], entry)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    pub(crate) fn run(&self, id: i64) -> anyhow::Result<Option<Entry>> {
        let query =
            "SELECT id, started, host, kernel, plan, label, verdict, folder, place, tags, model
             FROM run WHERE id = ?1";
        Ok(self.connection.query_row(query, [id], entry).optional()?)
    }

    /// The cells of a run, in order.
    pub(crate) fn cells(&self, id: i64) -> anyhow::Result<Vec<StoredCell>> {
        let mut query = self.connection.prepare(
            "SELECT name, missed, exposure_ns, min_ns, max_ns, sum_ns, unit_ns, exact, bins,
                    missed_is_known, unplaced, unplaced_from_ns, waited_ns
             FROM cell WHERE run = ?1 ORDER BY cell",
        )?;
        let mut rows = query.query([id])?;
        let mut cells = Vec::new();
        while let Some(row) = rows.next()? {
            cells.push(cell(row).with_context(|| format!("run {id} of the history is damaged"))?);
        }
        Ok(cells)
    }
}

/// What an import's file told besides its latencies.
fn told(record: &Record, fact: &str) -> Option<String> {
    let mut facts = record.origins().flat_map(|(_, origin)| &origin.facts);
    facts.find(|(name, _)| name == fact).map(|(_, value)| value.clone())
}

/// When an import was measured, where its file says it.
fn measured_at(record: &Record) -> Option<String> {
    let started = jiff::fmt::rfc2822::parse(&told(record, "started")?).ok()?;
    Some(started.timestamp().strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn word(verdict: Verdict) -> String {
    verdict.to_string().to_lowercase()
}

/// SQLite's integers are signed; a latency of 292 years is none.
fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn add_cell(
    change: &rusqlite::Transaction<'_>,
    run: i64,
    cell: &CellSummary,
) -> anyhow::Result<()> {
    let (row, histogram) = (&cell.all, &cell.all.histogram);
    change.execute(
        "INSERT INTO cell (run, cell, name, recorded, missed, exposure_ns, min_ns, max_ns, sum_ns,
                           unit_ns, exact, bins, missed_is_known, unplaced, unplaced_from_ns, waited_ns)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
        params![
            run,
            cell.cell,
            cell.name,
            signed(row.recorded),
            signed(row.missed),
            signed(row.exposure_ns),
            signed(histogram.min_ns().unwrap_or(0)),
            signed(histogram.max_ns().unwrap_or(0)),
            histogram.sum_ns().to_string(),
            signed(histogram.layout().unit_ns),
            histogram.layout().exact,
            serde_json::to_string(&histogram.bins())?,
            row.missed_is_known,
            signed(histogram.unplaced().count),
            signed(histogram.unplaced().from_ns),
            signed(row.waited_ns().unwrap_or(0)),
        ],
    )?;
    Ok(())
}

fn entry(row: &Row<'_>) -> rusqlite::Result<Entry> {
    // The file may come from another machine.
    let text = |at: usize| -> rusqlite::Result<String> {
        Ok(printable(&row.get::<_, String>(at)?).into_owned())
    };
    Ok(Entry {
        id: row.get(0)?,
        started: text(1)?,
        host: text(2)?,
        kernel: text(3)?,
        plan: text(4)?,
        label: text(5)?,
        verdict: text(6)?,
        folder: text(7)?,
        place: RunPlace { name: text(8)?, tags: text(9)?, model: text(10)? },
    })
}

fn cell(row: &Row<'_>) -> anyhow::Result<StoredCell> {
    let unsigned =
        |at: usize| -> anyhow::Result<u64> { Ok(u64::try_from(row.get::<_, i64>(at)?)?) };
    let layout = Layout { unit_ns: unsigned(6)?, exact: row.get(7)? };
    anyhow::ensure!(
        layout.unit_ns > 0
            && (rtscope_model::histogram::EXACT_MIN..=rtscope_model::histogram::EXACT_MAX)
                .contains(&layout.exact),
        "its histogram has no known buckets"
    );
    let bins: Vec<Bin> = serde_json::from_str(&row.get::<_, String>(8)?)?;
    let mut histogram = Histogram::new(layout);
    let sum_ns: u128 = row.get::<_, String>(5)?.parse()?;
    let unplaced = Unplaced { count: unsigned(10)?, from_ns: unsigned(11)? };
    histogram.add_all(&bins, unplaced, unsigned(3)?, unsigned(4)?, sum_ns);
    let missed = if row.get(9)? { Some(unsigned(1)?) } else { None };
    let waited_ns = Some(unsigned(12)?).filter(|ns| *ns > 0);
    Ok(StoredCell { name: row.get(0)?, missed, exposure_ns: unsigned(2)?, histogram, waited_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_first_version_is_read_and_brought_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("h.sqlite");
        let old = Connection::open(&file).expect("a file");
        old.execute_batch(TABLES).expect("tables");
        old.pragma_update(None, "user_version", 1).expect("a version");
        old.execute_batch(
            "INSERT INTO run VALUES (1, '2025-01-02T03:04:05Z', 'h', 'k', 'p', '', 'pass', 'f');
             INSERT INTO cell VALUES (1, 0, 'rest', 3, 1, 9, 5000, 7000, '18000', 1000, 10000,
                                      '[[5,1],[6,2]]');",
        )
        .expect("a run");
        drop(old);
        for _ in 0..2 {
            let cells = Store::open(&file).expect("opens").cells(1).expect("cells");
            assert_eq!((cells.len(), cells[0].missed), (1, Some(1)));
            assert_eq!(cells[0].figure(Statistic::Max), Some((7_000, false)));
            let waits = StoredCell { waited_ns: Some(9_000), ..cells[0].clone() };
            assert_eq!(waits.figure(Statistic::Max), Some((9_000, true)));
            assert_eq!((cells[0].histogram.count(), cells[0].histogram.unplaced().count), (3, 0));
        }
        let newer = Connection::open(&file).expect("a file");
        newer.pragma_update(None, "user_version", VERSION + 1).expect("a version");
        drop(newer);
        let refused = Store::open(&file).expect_err("a later version").to_string();
        assert!(refused.contains("is of version 5; this rtscope reads version 4"), "{refused}");
    }
}
