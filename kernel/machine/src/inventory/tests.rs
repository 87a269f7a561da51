use super::*;

fn name(number: u64) -> ShortName {
    ShortName(number)
}

/// Two processes and three contents, of which the second is shared.
fn sample_inventory() -> Inventory {
    let mut inventory = Inventory::default();
    for (content, segment) in [(1, 1), (2, 1), (3, 2)] {
        inventory.add_scanned_bytes(segment, 100);
        inventory.add_content(name(content), segment, 100);
    }
    for (pid, contents) in [(1, [1, 2]), (2, [2, 3])] {
        inventory.add_scanned_bytes(2, 60);
        inventory.add_record(Pid(pid), Need::image(FactNumber(0)), 2, 10);
        inventory.add_record(Pid(pid), Need::fact(FactNumber(5)), 2, 50);
        inventory.add_image(Pid(pid), FactNumber(0));
        inventory.add_facts(Pid(pid), FactNumber(1), 5);
        inventory.add_references(
            Pid(pid),
            Need::fact(FactNumber(5)),
            contents.into_iter().map(name),
        );
    }
    inventory.count_reports();
    inventory
}

fn live_contents_of(inventory: &Inventory, removals: &Removals) -> Vec<u64> {
    (1..=3)
        .filter(|number| inventory.is_referred_to(name(*number), removals))
        .collect()
}

fn processes(pids: &[u64]) -> Deletions {
    Deletions {
        processes: pids.iter().copied().map(Pid).collect(),
        ..Deletions::default()
    }
}

#[test]
fn a_content_is_live_while_a_remaining_process_refers_to_it() {
    let nothing = Removals::default();
    for (deleted, left, segments) in [
        (&[][..], &[1, 2, 3][..], [200, 220]),
        (&[1], &[2, 3], [100, 160]),
        (&[2], &[1, 2], [200, 60]),
        (&[1, 2], &[], [0, 0]),
    ] {
        let mut inventory = sample_inventory();
        let removals = inventory.removals(&processes(deleted));
        let predicted = [1, 2].map(|segment| inventory.usage(segment, &removals).unwrap().live);
        assert_eq!(
            (live_contents_of(&inventory, &removals), predicted),
            (left.to_vec(), segments),
            "{deleted:?} predicted"
        );
        assert_eq!(inventory.live_contents(&removals), left.len() as u64);
        deleted
            .iter()
            .for_each(|pid| inventory.delete_process(Pid(*pid)));
        let usage = [1, 2].map(|segment| inventory.usage(segment, &nothing).unwrap().live);
        assert_eq!(
            (live_contents_of(&inventory, &nothing), usage),
            (left.to_vec(), segments),
            "{deleted:?}"
        );
        assert_eq!(inventory.live_contents(&nothing), left.len() as u64);
    }
}

#[test]
fn repeated_reports_and_repeated_deletions_count_once() {
    let mut inventory = sample_inventory();
    for _ in 0..3 {
        inventory.add_references(
            Pid(1),
            Need::fact(FactNumber(2)),
            [name(1), name(1)].into_iter(),
        );
        inventory.count_reports();
    }
    inventory.delete_process(Pid(1));
    inventory.delete_process(Pid(1));
    assert_eq!(live_contents_of(&inventory, &Removals::default()), [2, 3]);
    inventory.add_references(Pid(3), Need::ALWAYS, [name(1)].into_iter());
    inventory.count_reports();
    assert_eq!(
        live_contents_of(&inventory, &Removals::default()),
        [1, 2, 3],
        "a content that is still there can be referred to again"
    );
    assert_eq!(inventory.usage(1, &Removals::default()).unwrap().live, 200);
}

#[test]
fn a_truncated_history_keeps_the_references_of_its_remaining_records() {
    let (fact, image) = (
        |number| Need::fact(FactNumber(number)),
        |number| Need::image(FactNumber(number)),
    );
    let records = [(image(0), 4), (fact(3), 1), (image(3), 2), (fact(4), 3)];
    for is_known in [true, false] {
        let mut inventory = Inventory::default();
        for (at, content) in records {
            inventory.add_scanned_bytes(1, 10);
            inventory.add_content(name(content), 2, 7);
            inventory.add_record(Pid(1), at, 1, 10);
            // Without the image, the inventory does not know which records are deleted together.
            match at {
                at if at == image(0) => inventory.add_image(Pid(1), FactNumber(0)),
                at if at == image(3) && is_known => inventory.add_image(Pid(1), FactNumber(3)),
                _ => {}
            }
            inventory.add_references(Pid(1), at, [name(content), name(9)].into_iter());
        }
        inventory.add_record(Pid(1), Need::ALWAYS, 1, 5);
        inventory.count_reports();
        let shorter = Deletions {
            histories: [(Pid(1), FactNumber(3))].into(),
            ..Deletions::default()
        };
        let removals = inventory.removals(&shorter);
        assert_eq!(live_contents_of(&inventory, &removals), [2, 3]);
        assert!(
            inventory.is_referred_to(name(9), &removals),
            "what the rest refers to as well stays"
        );
        let predicted = inventory.usage(1, &removals).unwrap();
        inventory.truncate_history(Pid(1), FactNumber(3));
        let usage = inventory.usage(1, &Removals::default()).unwrap();
        assert_eq!(live_contents_of(&inventory, &Removals::default()), [2, 3]);
        assert_eq!(
            (usage.live, usage.is_doubtful),
            (predicted.live, predicted.is_doubtful)
        );
        assert_eq!((usage.bytes, usage.is_doubtful), (40, !is_known));
        if is_known {
            assert_eq!(usage.live, 25);
            continue;
        }
        inventory.set_live(1, 25);
        let is_doubtful = |inventory: &Inventory| {
            inventory
                .usage(1, &Removals::default())
                .unwrap()
                .is_doubtful
        };
        assert!(!is_doubtful(&inventory));
        inventory.delete_process(Pid(1));
        assert!(
            is_doubtful(&inventory),
            "what is lost of it later is not known either"
        );
    }
}

#[test]
fn gaps_are_detected_in_any_order_of_reports() {
    let mut inventory = Inventory::default();
    for (first, count) in [(8, 3), (1, 2), (5, 3), (14, 1)] {
        inventory.add_facts(Pid(1), FactNumber(first), count);
    }
    let covers = |inventory: &Inventory, since, last| {
        inventory.covers(Pid(1), FactNumber(since), FactNumber(last))
    };
    assert_eq!(
        covers(&inventory, 0, 2),
        Err(None),
        "there is no image to begin from"
    );
    inventory.add_image(Pid(1), FactNumber(0));
    inventory.add_image(Pid(1), FactNumber(4));
    assert_eq!(covers(&inventory, 0, 2), Ok(()));
    assert_eq!(covers(&inventory, 0, 10), Err(Some(FactNumber(2))));
    assert_eq!(covers(&inventory, 4, 10), Ok(()));
    assert_eq!(covers(&inventory, 4, 14), Err(Some(FactNumber(10))));
    inventory.add_facts(Pid(1), FactNumber(3), 2);
    inventory.add_facts(Pid(1), FactNumber(11), 3);
    assert_eq!(covers(&inventory, 0, 14), Ok(()));
    assert_eq!(covers(&inventory, 0, 15), Err(Some(FactNumber(14))));
    assert_eq!(
        inventory.covers(Pid(2), FactNumber(0), FactNumber(0)),
        Err(None)
    );
    for number in [1, 3, 4] {
        inventory.add_temp_file(Pid(1), number);
    }
    assert_eq!(
        (inventory.temp_files(Pid(1)), inventory.temp_files(Pid(2))),
        (1, 0)
    );
    inventory.add_temp_file(Pid(1), 2);
    assert_eq!(inventory.temp_files(Pid(1)), 4);
}

#[test]
fn a_content_that_is_written_again_counts_at_its_newest_location() {
    let mut inventory = sample_inventory();
    inventory.add_scanned_bytes(3, 90);
    inventory.add_content(name(1), 3, 90);
    let usage = |inventory: &Inventory, segment| {
        inventory.usage(segment, &Removals::default()).unwrap().live
    };
    assert_eq!((usage(&inventory, 1), usage(&inventory, 3)), (100, 90));
    inventory.drop_segment(1);
    assert_eq!(inventory.usage(1, &Removals::default()), None);
    inventory.delete_process(Pid(1));
    assert_eq!(usage(&inventory, 3), 0);
    // Dropping a copy in another segment changes nothing; dropping the counted one leaves no live
    // bytes.
    for (pid, segment, live) in [(3, 2, 90), (4, 3, 0)] {
        inventory.remove_content(name(1), segment);
        assert!(!inventory.is_referred_to(name(1), &Removals::default()));
        inventory.add_references(Pid(pid), Need::ALWAYS, [name(1)].into_iter());
        inventory.count_reports();
        assert_eq!(usage(&inventory, 3), live, "dropped from segment {segment}");
        inventory.delete_process(Pid(pid));
    }
}

#[test]
fn attaching_to_another_store_resets_the_inventory() {
    let mut inventory = sample_inventory();
    inventory.attach_to(0);
    assert_eq!(
        live_contents_of(&inventory, &Removals::default()),
        [1, 2, 3]
    );
    inventory.attach_to(1);
    assert!(live_contents_of(&inventory, &Removals::default()).is_empty());
    assert_eq!(inventory.scan_position(), ScanPosition::default());
}

#[test]
fn a_history_starts_one_image_before_the_needed_one() {
    let mut inventory = Inventory::default();
    for at in [0, 10, 20, 30] {
        inventory.add_image(Pid(1), FactNumber(at));
    }
    let begins = |inventory: &Inventory, floor| {
        inventory
            .history_start_for(Pid(1), FactNumber(floor))
            .map(|fact| fact.0)
    };
    let cases = [
        (5, None),
        (10, None),
        (19, None),
        (20, Some(10)),
        (29, Some(10)),
        (99, Some(20)),
    ];
    for (floor, expected) in cases {
        assert_eq!(begins(&inventory, floor), expected, "{floor}");
    }
    inventory.truncate_history(Pid(1), FactNumber(10));
    assert_eq!(begins(&inventory, 20), None, "that is given up already");
    inventory.remove_image(Pid(1), FactNumber(20));
    assert_eq!(begins(&inventory, 99), None);
}

#[test]
fn each_reported_process_is_returned_once_although_others_are_deleted() {
    let mut inventory = sample_inventory();
    inventory.add_facts(Pid(1), FactNumber(6), 1);
    inventory.delete_process(Pid(2));
    inventory.add_facts(Pid(3), FactNumber(1), 1);
    assert_eq!(inventory.count_reports(), [Pid(1), Pid(3)].into());
    assert!(inventory.count_reports().is_empty());
}

#[test]
fn an_end_is_known_only_if_all_records_of_the_process_are_readable() {
    let mut inventory = sample_inventory();
    inventory.set_ended(Pid(1), 700);
    assert_eq!(
        [1, 2, 3].map(|pid| inventory.ended_ms(Pid(pid))),
        [Some(700), None, None]
    );
    inventory.note_unreadable(Some(Pid(2)), "a fact".to_owned());
    inventory.note_unreadable(None, "a segment of the log".to_owned());
    assert_eq!(inventory.ended_ms(Pid(1)), Some(700));
    inventory.note_unreadable(Some(Pid(1)), "a fact".to_owned());
    assert_eq!(inventory.ended_ms(Pid(1)), None);
}
