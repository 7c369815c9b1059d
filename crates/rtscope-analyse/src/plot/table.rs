//! The numbers behind a plot, for readers who can't or won't look at it.

/// A table of texts. The first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    /// Names of the columns.
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

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        let row: Vec<String> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(row.len(), self.head.len(), "{row:?}");
        self.rows.push(row);
    }
}
