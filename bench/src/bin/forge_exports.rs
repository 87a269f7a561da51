//! Writes exports of about 20 MB into a folder, for measuring `dormouse show` and `dormouse
//! import`: two as long sessions produce them, and forged ones with valid hashes that claim many
//! facts or messages and contain zeros in their place, or nothing.
//!
//! An export is a list of records, here those of a stored export with some of them replaced. Kind 1
//! is the head, 2 a member (a process with its image), 3 facts of it, 5 a content.

use std::path::Path;

use dormouse::export::{Facts, Member};
use dormouse::record::{ContentRef, Fact, MailFact, codec};
use dormouse_proto::id::{CommitNumber, FactNumber};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Message;
use dormouse_tests::forge::export::{self, Record};
use dormouse_tests::forge::number;

const SEED: &[u8] = include_bytes!("../../../kernel/tests/golden/export-1.dormouse");
const BYTES: usize = 20 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args()
        .nth(1)
        .ok_or("usage: forge_exports FOLDER")?;
    let write = |name: &str, records: &[Record]| {
        std::fs::write(Path::new(&folder).join(name), export::file(records))
    };
    write(
        "session.dormouse",
        &session(
            60_000,
            "What was said, in a line of about sixty characters or so.",
        )?,
    )?;
    write("short-messages.dormouse", &session(220_000, "a")?)?;
    write("empty-facts.dormouse", &empty_facts()?)?;
    write("empty-messages.dormouse", &empty_messages()?)?;
    let mut claims = export::records(SEED);
    claims[1].payload = encode_with_claim(&golden_member()?, 1 << 40, 0)?;
    Ok(write("claim.dormouse", &claims)?)
}

fn golden_member() -> Result<Member, codec::CodecError> {
    let records = export::records(SEED);
    let mut member: Member = codec::decode(&records[1].payload)?;
    // The golden image belongs to no process: its table has a descriptor that was never assigned.
    member.image.next_fd = 2;
    Ok(member)
}

/// Contents that the process references.
fn contents() -> impl Iterator<Item = Record> {
    export::records(SEED)
        .into_iter()
        .filter(|record| record.kind == 5)
        .take(2)
}

/// A process with this many messages and one fact for each, several in a commit, until the file is
/// large enough.
fn session(messages: usize, text: &str) -> Result<Vec<Record>, codec::CodecError> {
    let (mut member, mut records) = (golden_member()?, export::records(SEED)[..1].to_vec());
    member.image.messages = (0..messages).map(|_| Message::user(text).into()).collect();
    let fact: Fact<ContentRef> = Fact::Mail(MailFact::Queued {
        from: Sender::Host,
        message: Message::user(text).into(),
    });
    let facts = vec![codec::encode(&fact)?; 4];
    let mut facts_records = Vec::new();
    let (mut first, mut left) = (1, BYTES - codec::encode(&member.image)?.len());
    while left > 300 {
        let (pid, commit) = (member.row.pid, CommitNumber(first));
        let payload = codec::encode(&Facts {
            pid,
            commit,
            at_ms: 1,
            first: FactNumber(first),
            facts: facts.clone(),
        })?;
        (first, left) = (first + 4, left.saturating_sub(payload.len() + 80));
        facts_records.push(Record::new(3, payload));
    }
    member.at = FactNumber(first - 1);
    records.push(Record::new(2, codec::encode(&member)?));
    records.extend(facts_records);
    records.extend(contents());
    Ok(records)
}

fn empty_facts() -> Result<Vec<Record>, codec::CodecError> {
    let member = golden_member()?;
    let facts_records = Facts {
        pid: member.row.pid,
        commit: CommitNumber(1),
        at_ms: 1,
        first: FactNumber(1),
        facts: Vec::new(),
    };
    let mut payload = codec::encode(&facts_records)?;
    payload.pop();
    payload.extend([number(BYTES as u64), vec![0; BYTES]].concat());
    let mut records = export::records(SEED)[..2].to_vec();
    records.push(Record::new(3, payload));
    Ok(records)
}

fn empty_messages() -> Result<Vec<Record>, codec::CodecError> {
    let mut records = export::records(SEED)[..2].to_vec();
    records[1].payload = encode_with_claim(&golden_member()?, BYTES as u64 / 2, BYTES)?;
    Ok(records)
}

/// A process that claims this many messages, with zeros in their place: two zeros are an empty
/// message.
fn encode_with_claim(
    member: &Member,
    claim: u64,
    zeros: usize,
) -> Result<Vec<u8>, codec::CodecError> {
    let mut longer = member.image.clone();
    longer.messages.push_back(Message::user("").into());
    let (plain, longer) = (codec::encode(&member.image)?, codec::encode(&longer)?);
    let at = plain
        .iter()
        .zip(&longer)
        .position(|(one, other)| one != other)
        .unwrap_or_default();
    let mut payload = codec::encode(&(&member.row, member.at))?;
    payload.extend(
        [
            &plain[..at],
            &number(claim),
            &vec![0; zeros],
            &plain[at + 1..],
        ]
        .concat(),
    );
    Ok(payload)
}
