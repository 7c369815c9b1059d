//! The numbers behind a plot, for readers who can't or won't look at it.

/// A table of texts. The first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) head: Vec<String>,
    /// Rows, each as long as the head.
    pub(crate) rows: Vec<Vec<String>>,
    /// What the table leaves out; empty when it is complete.
    pub(crate) note: String,
}

impl Table {
    /// An empty table with these columns.
    pub(crate) fn new(head: impl IntoIterator<Item = impl Into<String>>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), ..Table::default() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        assert_eq!(row.len(), self.head.len(), "{row:?}");
        self.rows.push(row);
    }

    /// The table without rows and columns that hold nothing beside their name.
    pub(crate) fn trimmed(mut self) -> Table {
        self.rows.retain(|row| row.len() < 2 || row[1..].iter().any(|cell| !cell.is_empty()));
        for n in (1..self.head.len()).rev() {
            if self.rows.iter().all(|row| row[n].is_empty()) {
                self.head.remove(n);
                self.rows.iter_mut().for_each(|row| drop(row.remove(n)));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_nothing_is_left_out() {
        let mut table = Table::new(["at", "count", "interval", "share"]);
        table.row(["1 us", "3", "", "all"]);
        table.row(["2 us", "", "", ""]);
        table.row(["4 us", "0", "", ""]);
        let table = table.trimmed();
        assert_eq!(table.head, ["at", "count", "share"]);
        assert_eq!(table.rows, [["1 us", "3", "all"], ["4 us", "0", ""]]);
    }
}
