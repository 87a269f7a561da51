//! Keywords: enums whose values are words in a program file.

pub(crate) use dormouse_macros::Keyword;
use serde_json::{Value as Json, json};

use super::{Diagnostic, Node, Reader, Rules, Value, advice, shorten};

/// A word, the value that it names, and its description.
pub(crate) type Word<T> = (&'static str, T, &'static str);

/// A value that is one of a few words. Derived for an enum.
pub(crate) trait Keyword: Value + Copy + PartialEq + 'static {
    /// The words. If several name one value, the first is the canonical one.
    const WORDS: &'static [Word<Self>];

    /// The word for this value in a program file.
    fn word(self) -> &'static str {
        let mut words = Self::WORDS.iter();
        let found = words.find(|(_, value, _)| *value == self);
        found.expect("every variant has a word").0
    }

    /// The value that a word names.
    fn from_word(word: &str) -> Option<Self> {
        let mut words = Self::WORDS.iter();
        words
            .find(|(known, ..)| *known == word)
            .map(|(_, value, _)| *value)
    }

    /// Reads a word; any other text is reported with the nearest one.
    fn read_word(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let text = String::read(table, key, node, &rules.of_word::<Self>())?;
        let value = Self::from_word(&text);
        if value.is_none() {
            let valid: Vec<_> = Self::WORDS.iter().map(|(word, ..)| *word).collect();
            let message = format!("`{}` cannot be {:?}", table.path_of(key), shorten(&text));
            let wrong = Diagnostic::error(node.span(), message, "not one of its values");
            table.report(wrong.help(advice(&text, &valid, "values")));
        }
        value
    }

    /// The words and their meanings.
    fn schema_of_words() -> Json {
        let words: Vec<_> = Self::WORDS.iter().map(|(word, ..)| word).collect();
        let meanings = Self::WORDS
            .iter()
            .filter(|(word, value, _)| *word == value.word());
        let meanings = meanings.map(|(word, _, meaning)| format!("`{word}`: {meaning}"));
        let meanings: Vec<_> = meanings.collect();
        json!({ "enum": words, "description": meanings.join(" ") })
    }
}
