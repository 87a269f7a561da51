//! Page tables: where pages begin, assigned greedily from the first character on.
//!
//! PAGE-1: the pages joined are the text. PAGE-2: no page is longer than the page size. PAGE-3: a
//! page that ends within a line has exactly the page size.

use std::sync::OnceLock;

use super::chars;

/// The page tables of one text by page size: an append-only list, so that a table can be borrowed
/// without a lock. A text has one page size, rarely two.
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
    /// The table of this page size, if it was built.
    pub(super) fn find(&self, page_chars: u32) -> Option<&PageTable> {
        self.nodes()
            .find(|node| node.page_chars == page_chars)
            .map(|node| &node.table)
    }

    /// The table of this page size. Built in one pass on first use.
    pub(super) fn find_or_build(&self, page_chars: u32, text: &str, is_ascii: bool) -> &PageTable {
        self.get_or_build(page_chars, || {
            PageTable::new(text, page_chars as usize, is_ascii)
        })
    }

    /// Adds a deserialized table: page starts in bytes, ascending from 0.
    pub(super) fn insert(&self, page_chars: u32, starts: Vec<usize>) {
        self.get_or_build(page_chars, || PageTable {
            starts: starts.clone().into(),
        });
    }

    fn get_or_build(&self, page_chars: u32, build_table: impl Fn() -> PageTable) -> &PageTable {
        let new_node = || {
            Box::new(Node {
                page_chars,
                table: build_table(),
                next: OnceLock::new(),
            })
        };
        let mut node = self.first.get_or_init(new_node);
        while node.page_chars != page_chars {
            node = node.next.get_or_init(new_node);
        }
        &node.table
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.first.get(), |node| node.next.get()).map(|node| &**node)
    }

    /// All tables: page size and page starts.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &[usize])> {
        self.nodes()
            .map(|node| (node.page_chars, &*node.table.starts))
    }

    /// Memory of all tables, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.nodes()
            .map(|node| size_of_val(node) + size_of_val(&*node.table.starts))
            .sum()
    }
}

/// The start of each page in bytes. Takes eight bytes per page.
#[derive(Debug)]
pub(super) struct PageTable {
    starts: Box<[usize]>,
}

impl PageTable {
    fn new(text: &str, page_chars: usize, is_ascii: bool) -> Self {
        let bytes = text.as_bytes();
        let mut starts = vec![0];
        let mut page_start = 0_usize;
        loop {
            let end = if is_ascii {
                page_start.saturating_add(page_chars)
            } else {
                chars::skip(bytes, page_start, page_chars)
            };
            if end >= bytes.len() {
                return Self {
                    starts: starts.into(),
                };
            }
            page_start = page_end(bytes, page_start, end);
            starts.push(page_start);
        }
    }

    pub(super) fn len(&self) -> u64 {
        self.starts.len() as u64
    }

    /// The start of a page, counted from 1.
    pub(super) fn start(&self, page: u64) -> Option<usize> {
        let index = usize::try_from(page).ok()?.checked_sub(1)?;
        self.starts.get(index).copied()
    }

    /// The page of a byte, from 1.
    pub(super) fn page_at(&self, byte: usize) -> u64 {
        self.starts.partition_point(|start| *start <= byte) as u64
    }
}

/// The end of a page that may reach to `end`: after its last LF, or `end` if it contains none.
pub(super) fn page_end(bytes: &[u8], start: usize, end: usize) -> usize {
    memchr::memrchr(b'\n', &bytes[start..end]).map_or(end, |feed| start + feed + 1)
}
