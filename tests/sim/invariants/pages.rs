//! PAGE-1 to PAGE-3, of every descriptor that is opened.

use dormouse_kernel::process::Fact;
use dormouse_proto::record::DescriptorFact;

use super::{Held, ensure};
use crate::defect::Defect;
use crate::world::World;

impl World {
    pub(super) fn pages_of(&mut self, fact: &Fact) -> Held {
        let (id, entry) = match fact {
            Fact::Descriptor(DescriptorFact::Opened { id, entry }) => (id.to_string(), entry),
            Fact::Compacted {
                compacted, entry, ..
            } => (format!("history:{}", compacted.history), &**entry),
            _ => return Ok(()),
        };
        let (content, size) = (&entry.content, entry.page_chars);
        let mut joined = String::new();
        for page in 1..=content
            .unlimited_reader()
            .total_pages(size)
            .expect("it is in memory")
        {
            let Some(slice) = content
                .unlimited_reader()
                .page(size, page)
                .expect("it is in memory")
            else {
                continue;
            };
            let chars = slice.text.chars().count() as u64;
            let size = u64::from(size);
            ensure(chars <= size, "PAGE-2", || {
                format!("page {page} of {id} has {chars} characters of {size}")
            })?;
            let is_cut = slice.truncated
                && page
                    < content
                        .unlimited_reader()
                        .total_pages(entry.page_chars)
                        .expect("it is in memory");
            ensure(!is_cut || chars == size, "PAGE-3", || {
                format!("page {page} of {id} is cut at {chars} of {size}")
            })?;
            let cut = if self.defect == Some(Defect::LosesTheEndOfAPage) && is_cut {
                1
            } else {
                0
            };
            joined.extend(slice.text.chars().take(chars as usize - cut));
            self.tally.count("pages read");
        }
        ensure(
            joined == *content.unlimited_reader().text().expect("it is in memory"),
            "PAGE-1",
            || format!("the pages of {id} are not its content"),
        )
    }
}
