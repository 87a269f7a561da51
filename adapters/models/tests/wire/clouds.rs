//! Recorded requests to clouds, laid next to those of the codecs that are behind features: path and
//! body. How such a request is signed is tested against played clouds.

use dormouse_models::wire::{CloudLocation, Codec, Delivery, Purpose, encode};
use serde_json::Value;

use crate::asks::Taken;
use crate::check::Recorded;
use crate::compare::difference;
use crate::reader::{self, Answer, Interaction};
use crate::skip::skip;

/// Compares each request to a cloud that `codec` serves and that `taken` can say. `others` is the
/// number of those that it cannot say.
pub(crate) fn check<R: Recorded, C: Codec>(
    location: CloudLocation,
    taken: fn(&Interaction) -> Taken,
    others: usize,
) {
    let corpus = reader::corpus().map(|corpus| corpus.interactions);
    let mut recorded = corpus.unwrap_or_default();
    recorded.retain(|interaction| R::is_of(interaction) && R::is_cloud(interaction));
    if recorded.is_empty() {
        return skip("recordings", "no request to this cloud is recorded");
    }
    let codec = C::default().in_location(&location);
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for interaction in &recorded {
        let request = match taken(interaction) {
            Ok(request) => request,
            Err(why) => {
                eprintln!("  {} not compared: {why}", interaction.name);
                continue;
            }
        };
        let delivery = match &interaction.answer {
            Answer::Events(_) => Delivery::Stream,
            Answer::Whole(_) | Answer::Nothing => Delivery::Whole,
        };
        let purpose = Purpose::Reply(delivery);
        let path = codec.path(&request, purpose).unwrap().unwrap();
        let path = path.replace("%3A", ":");
        let asked = [&*interaction.path, &*interaction.query].concat();
        if !asked.ends_with(&path) {
            wrong.push(format!("{}: {path} is not {asked}", interaction.name));
        }
        let body = encode(&codec, &request, purpose, None).unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        let theirs = R::canonical(interaction.asked.clone());
        let differs = difference("", &R::canonical(body), &theirs);
        wrong.extend(differs.map(|what| format!("{}: {what}", interaction.name)));
        compared += 1;
    }
    eprintln!(
        "{compared} of {} requests to a cloud compared",
        recorded.len()
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(recorded.len() - compared <= others, "{compared} compared");
}
