//! Prices of models. If a program limits its cost, every model that it or a linked program may call
//! needs a price.
//!
//! The price of a model is taken from the program, else from the entry of the compilation, else
//! from the host.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_proto::budget::Price;
use dormouse_proto::program::{CacheTtl, Diagnostic, Named, Span, SummaryMethod, parse_prices};

use super::compile::Compiled;
use super::finding::{Finding, ProgramErrors, named_source};
use super::library::Program;

/// A model without a price, in a program whose cost is bounded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cost is bounded, and program {program} calls the model '{model}', which has no price. Say \
     what it costs: [prices.\"{model}\"] with `input` and `output` per million tokens, or \
     `KernelBuilder::price`"
)]
pub struct MissingPrice {
    /// The program that calls it.
    pub program: String,
    /// The model.
    pub model: String,
}

/// Parses a price file, which contains the table `[prices]` of a program file and nothing else.
/// `name` is its name in errors.
///
/// # Errors
/// [`ProgramErrors`]: every mistake in it.
pub fn read_prices(name: &str, text: &str) -> Result<BTreeMap<String, Price>, ProgramErrors> {
    match parse_prices(text) {
        Ok(prices) => Ok(by_model(prices)),
        Err(diagnostics) => {
            let source = named_source(name, text);
            let findings = diagnostics
                .into_vec()
                .into_iter()
                .map(|diagnostic| Finding::new(&source, diagnostic));
            Err(ProgramErrors::new(name, findings.collect()))
        }
    }
}

pub(super) fn by_model(prices: Vec<Named<Price>>) -> BTreeMap<String, Price> {
    let entries = prices.into_iter();
    entries
        .map(|Named { name, value }| (name.value, value))
        .collect()
}

impl Program {
    /// The price of a model for this program. `host` holds the host's prices.
    #[must_use]
    pub fn price(&self, model: &str, host: &BTreeMap<String, Price>) -> Option<Price> {
        let lookup = |prices: &BTreeMap<String, Price>| prices.get(model).cloned();
        lookup(self.prices())
            .or_else(|| lookup(self.entry().prices()))
            .or_else(|| lookup(host))
            .map(|price| price.with_cache_ttl(self.cache_ttl(model)))
    }

    /// The lifetime of the provider's cache entries for this program's calls of a model. The
    /// model's `cache_ttl` sets it, or `[parameters]` in the provider's own format.
    fn cache_ttl(&self, model: &str) -> CacheTtl {
        let mut models = self.models().iter();
        let choice = models.find(|choice| choice.name == model);
        let ttl = choice.and_then(|choice| choice.cache_ttl);
        ttl.unwrap_or_default().in_request(&self.parameters())
    }

    /// Checks that every model that this program and its linked programs may call has a price.
    ///
    /// # Errors
    /// [`MissingPrice`]: the first model without a price.
    pub fn check_prices(&self, host: &BTreeMap<String, Price>) -> Result<(), MissingPrice> {
        let (mut seen, mut unvisited) = (BTreeSet::new(), vec![self.clone()]);
        while let Some(program) = unvisited.pop() {
            if !seen.insert(program.key().to_owned()) {
                continue;
            }
            if let Some(model) = program
                .called_models()
                .into_iter()
                .find(|model| program.price(model, host).is_none())
            {
                return Err(MissingPrice {
                    program: program.name().to_owned(),
                    model: model.to_owned(),
                });
            }
            unvisited.extend(program.linked().map(|(_, _, linked)| linked));
        }
        Ok(())
    }

    /// The models that the program itself may call.
    fn called_models(&self) -> Vec<&str> {
        let is_automatic = self
            .descriptors()
            .is_some_and(|settings| settings.auto_summary_chars.is_some());
        let context = self.context();
        let summarizes = is_automatic
            || (context.enabled && context.summary == SummaryMethod::Model)
            || self.tools().iter().any(|tool| tool.name == "summarize_fd");
        let summary = summarizes.then(|| self.summary_model());
        self.models()
            .iter()
            .map(|model| model.name.as_str())
            .chain(summary)
            .collect()
    }
}

impl Compiled {
    /// Checks the prices, given those of the host.
    ///
    /// # Errors
    /// [`ProgramErrors`]: every program that limits its cost and may call, directly or in linked
    /// programs, a model without a price.
    pub fn check_prices(self, host: &BTreeMap<String, Price>) -> Result<Self, ProgramErrors> {
        let mut findings = Vec::new();
        for program in self.program.all_programs() {
            let Some(at) = program.cost_at() else {
                continue;
            };
            if let Err(unpriced) = program.check_prices(host) {
                findings.push(Finding::new(
                    &program.source(),
                    unpriced_error(at, &unpriced),
                ));
            }
        }
        self.fail_on_findings(findings)
    }
}

fn unpriced_error(at: Span, MissingPrice { program, model }: &MissingPrice) -> Diagnostic {
    let message = format!("the model `{model}`, which `{program}` calls, has no price");
    let help =
        format!("add [prices.{model:?}] with `input` and `output`: what a million tokens cost");
    Diagnostic::error(at, message, "cannot be counted").help(help)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use dormouse_proto::budget::NANOS_PER_UNIT;
    use dormouse_proto::file::{FileError, FileErrorKind};

    use super::super::compile;
    use super::*;
    use crate::KernelTool;

    /// Compiles `main.toml`, which links `other.toml`, with the host's prices.
    fn check(main: &str, other: &str, host: &[&str]) -> Result<Option<Price>, String> {
        let model = |name: &str| format!("[model]\nname = \"{name}\"\nprovider = \"scripted\"\n");
        let link = "[tools]\nenabled = [\"spawn\"]\n[linked_programs]\nother = \"other.toml\"\n";
        let (main, other) = (
            format!("{}{link}{main}", model("m")),
            format!("{}{other}", model("n")),
        );
        let mut read = |path: &Path| match path.to_str() {
            Some("main.toml") => Ok(Bytes::from(main.clone())),
            Some("other.toml") => Ok(Bytes::from(other.clone())),
            _ => Err(FileError {
                kind: FileErrorKind::FileNotFound,
                message: String::new(),
            }),
        };
        let host = host
            .iter()
            .map(|model| ((*model).to_owned(), Price::new(7, 7)))
            .collect();
        let spawn = KernelTool {
            name: "spawn",
            is_for_descriptors: false,
            parameters: Vec::new(),
        };
        let compiled = compile(Path::new("main.toml"), &mut read, &[spawn], &[]).unwrap();
        let linked = compiled.program.linked_program("other").unwrap();
        let priced = compiled
            .check_prices(&host)
            .map_err(|errors| errors.to_string());
        priced.map(|_| linked.price("n", &host))
    }

    #[test]
    fn a_table_of_prices_is_parsed_or_all_its_mistakes_are_reported() {
        let prices = read_prices(
            "p.toml",
            "[prices]\n\"a-1\" = { input = \"2.50\", output = 10 }\n",
        )
        .unwrap();
        assert_eq!(
            prices["a-1"],
            Price::new(5 * NANOS_PER_UNIT / 2, 10 * NANOS_PER_UNIT)
        );
        let text = "[prices.a]\ninput = 1\noutput = 1\nserver_tools = { web_search = \"0.01\" }\n";
        let price = &read_prices("p.toml", text).unwrap()["a"];
        assert_eq!(price.server_tools["web_search"], NANOS_PER_UNIT / 100);
        for wrong in ["= -1", "= \"free\"", "= {}"] {
            let text = text.replace("= \"0.01\"", wrong);
            let errors = read_prices("p.toml", &text).unwrap_err();
            assert!(errors.to_string().contains("web_search"), "{errors}");
        }
        let errors = read_prices("p.toml", "[prices]\na = { input = -1 }\n[model]\n").unwrap_err();
        assert!(
            errors.errors().len() >= 2 && errors.to_string().contains("p.toml:2"),
            "{errors}"
        );
        assert!(read_prices("p.toml", "[prices").is_err());
    }

    #[test]
    fn a_bounded_cost_needs_a_price_for_every_model_that_may_be_called() {
        let (bound, price) = ("[budget]\ncost = 1\n", |model: &str| {
            format!("[prices.{model}]\ninput = 1\noutput = 2\n")
        });
        let own = Price::new(NANOS_PER_UNIT, 2 * NANOS_PER_UNIT);
        assert_eq!(
            check("", "", &[]),
            Ok(None),
            "an unbounded cost needs no prices"
        );
        assert_eq!(
            check(bound, "", &["m", "n"]),
            Ok(Some(Price::new(7, 7))),
            "the host's price"
        );
        assert_eq!(
            check(bound, &price("n"), &["m", "n"]),
            Ok(Some(own.clone())),
            "the program's own price comes first"
        );
        assert_eq!(
            check(&format!("{bound}{}", price("n")), "", &["m"]),
            Ok(Some(own)),
            "then the price in the entry"
        );
        let missing = check(bound, "", &["m"]).unwrap_err();
        assert!(
            missing.contains("main.toml:9: the model `n`, which `other` calls, has no price"),
            "{missing}"
        );
        let missing = check("", bound, &["m"]).unwrap_err();
        assert!(
            missing.contains("the model `n`, which `other` calls, has no price"),
            "{missing}"
        );
    }
}
