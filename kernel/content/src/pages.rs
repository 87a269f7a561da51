//! Where pages begin: greedily, from the first character on.
//!
//! PAGE-1: the pages, joined, are the text. PAGE-2: none is longer than the page size. PAGE-3: one
//! that ends inside a line is exactly as long.

use std::sync::OnceLock;

use super::chars;

/// The tables of one text, by page size: an append-only list, so that a table that was made can be
/// lent without a lock. A text has one page size, seldom two.
#[derive(Debug, Default)]
pub(super) struct PageTables {
    first: OnceLock<Box<Node>>,
}

#[derive(Debug)]
struct Node {
    page_chars: u32,
    table: PageTable,
    next: OnceLock<Box<Node>>,
}

impl PageTables {
    /// The table of this page size, where it has been made.
    pub(super) fn find(&self, page_chars: u32) -> Option<&PageTable> {
        self.nodes()
            .find(|node| node.page_chars == page_chars)
            .map(|node| &node.table)
    }

    /// The table of this page size, made in one pass if it is the first time that it is asked for.
    pub(super) fn of_size(&self, page_chars: u32, text: &str, is_ascii: bool) -> &PageTable {
        self.or_make(page_chars, || {
            PageTable::new(text, page_chars as usize, is_ascii)
        })
    }

    /// Takes in a table that was made before: where pages begin, in bytes, ascending from 0.
    pub(super) fn keep(&self, page_chars: u32, starts: Vec<usize>) {
        self.or_make(page_chars, || PageTable {
            starts: starts.clone().into(),
        });
    }

    fn or_make(&self, page_chars: u32, make: impl Fn() -> PageTable) -> &PageTable {
        let make = || {
            Box::new(Node {
                page_chars,
                table: make(),
                next: OnceLock::new(),
            })
        };
        let mut node = self.first.get_or_init(make);
        while node.page_chars != page_chars {
            node = node.next.get_or_init(make);
        }
        &node.table
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.first.get(), |node| node.next.get()).map(|node| &**node)
    }

    /// Page sizes, and where the pages of each begin.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[usize])> {
        self.nodes()
            .map(|node| (node.page_chars, &*node.table.starts))
    }

    /// What the tables that have been made take, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.nodes()
            .map(|node| size_of_val(node) + size_of_val(&*node.table.starts))
            .sum()
    }
}

/// Where each page begins, in bytes: eight bytes a page.
#[derive(Debug)]
pub(super) struct PageTable {
    starts: Box<[usize]>,
}

impl PageTable {
    fn new(text: &str, page_chars: usize, is_ascii: bool) -> Self {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        let mut at = 0_usize;
        loop {
            let end = if is_ascii {
                at.saturating_add(page_chars)
            } else {
                chars::skip(bytes, at, page_chars)
            };
            if end >= bytes.len() {
                return Self {
                    starts: starts.into(),
                };
            }
            at = cut(bytes, at, end);
            starts.push(at);
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.starts.len() as u64
    }

    /// Where a page, counted from 1, begins.
    pub(super) fn start(&self, page: u64) -> Option<usize> {
        let at = usize::try_from(page).ok()?.checked_sub(1)?;
        self.starts.get(at).copied()
    }

    /// The page, from 1, that a byte stands on.
    pub(super) fn page_of(&self, byte: usize) -> u64 {
        self.starts.partition_point(|start| *start <= byte) as u64
    }
}

/// Where a window ends that must not reach further than `end`: after its last LF, or at `end` if it
/// holds none.
pub(super) fn cut(bytes: &[u8], start: usize, end: usize) -> usize {
    memchr::memrchr(b'\n', &bytes[start..end]).map_or(end, |feed| start + feed + 1)
}
