//! The built-in price table of hosted models: `prices.toml` in the folder of this crate.

use std::collections::BTreeMap;

use dormouse_kernel::program::read_prices;
use dormouse_proto::budget::Price;

const TABLE: &str = include_str!("../prices.toml");

/// The prices of models in US dollars, by model name, as of the month that the table names. For
/// newer prices, pass a second table to the kernel, or put prices into a program. Parses the table
/// at each call.
///
/// ```
/// use dormouse_models::prices;
///
/// assert!(prices().contains_key("claude-sonnet-4-5"));
/// ```
#[must_use]
pub fn prices() -> BTreeMap<String, Price> {
    read_prices("prices.toml", TABLE).expect("the table was tested")
}

#[cfg(test)]
mod tests {
    use dormouse_proto::budget::NANOS_PER_UNIT;

    use super::*;

    #[test]
    fn the_price_table_parses_and_its_prices_are_plausible() {
        let prices = prices();
        assert!(prices.len() > 50);
        for (model, price) in &prices {
            let Price {
                input,
                output,
                cache_read,
                cache_write,
                cache_write_1h,
                ..
            } = *price;
            assert!(
                0 < input && input <= output && output <= 1_000 * NANOS_PER_UNIT,
                "{model}: {price:?}"
            );
            assert!(
                cache_read <= input && cache_write <= cache_write_1h && cache_write_1h <= 3 * input,
                "{model}: {price:?}"
            );
        }
        assert_eq!(prices["claude-sonnet-4-5"].output, 15 * NANOS_PER_UNIT);
    }
}
