//! Nodes that join: before their database is there, and with other versions.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use dormouse::Kernel;
use dormouse_cluster::{Cluster, ClusterError, ClusterOptions, Refusal, pids_of};
use dormouse_postgres::ShardId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common::{LONG_LEASE, World, until, within};

/// Forwards connections to a port of this machine to another port, until the program ends.
fn forward(listener: TcpListener, to: u16) {
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, to)).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server, client),
            ] {
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            }
        }
    });
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_waits_for_its_database() {
    let world = World::new(LONG_LEASE);
    let (server, port) = (world.port(), free_port());
    let world = world.at_port(port);
    let early = Cluster::connect(world.database().connect_timeout(Duration::from_millis(300)));
    let early = early.await.unwrap_err();
    assert!(matches!(early, ClusterError::Database(_)), "{early}");

    let node = world.spawn("a", &[]);
    // Longer than one attempt to connect may take.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(
        world
            .log_of("a")
            .contains("cannot bring its tables up to date yet")
    );
    forward(
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap(),
        server,
    );
    let cluster = world.connect().await;
    world.settled(&cluster, &["a"]).await;
    drop(node);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_waits_for_its_database_can_be_ended() {
    let world = World::new(LONG_LEASE).at_port(free_port());
    let node = world.spawn("a", &[]);
    until("it waits", async || world.log_of("a").contains("cannot")).await;
    let begun = std::time::Instant::now();
    node.signal("TERM");
    assert!(within(node.ended_well()).await);
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_names_no_number_takes_the_shards_that_there_are() {
    let world = World::new(LONG_LEASE);
    let join = async |options| Cluster::join(options, |_| Kernel::builder()).await.unwrap();
    let unnamed = |name| ClusterOptions::new(world.database(), name).lease(LONG_LEASE);
    let first = join(unnamed("first").shards(3)).await;
    let second = join(unnamed("second")).await;
    world.settled(&first, &["first", "second"]).await;
    let shards = async |cluster: &Cluster| {
        let nodes = cluster.nodes().await.unwrap();
        nodes.iter().map(|node| node.shards).sum::<usize>()
    };
    assert_eq!(shards(&second).await, 3);
    within(second.drain()).await;
    within(first.drain()).await;

    let world = World::new(LONG_LEASE);
    let alone = ClusterOptions::new(world.database(), "alone").lease(LONG_LEASE);
    let alone = join(alone).await;
    until("64 are its own", async || shards(&alone).await == 64).await;
    within(alone.drain()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_another_version_is_seen_and_a_call_that_it_does_not_know_is_refused() {
    let world = World::new(LONG_LEASE);
    let options = world.options("first").shards(1);
    let first = Cluster::join(options, |_| Kernel::builder()).await.unwrap();
    world.settled(&first, &["first"]).await;
    assert!(first.nodes().await.unwrap()[0].protocol > 0);
    within(first.drain()).await;

    // A node of a later version, which knows none of the calls of this one and has the shard.
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = vec![0; 4096];
            let _read = stream.read(&mut request).await.unwrap();
            let answer = "HTTP/1.1 422 Unprocessable Entity\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    let later = format!(
        "INSERT INTO {{schema}}.node (id, name, address, labels, lease_ms, seen_at, protocol)
            VALUES ('later#1', 'later', '127.0.0.1:{port}', '{{}}', 600000, clock_timestamp(), 99);
        INSERT INTO {{schema}}.lease (shard, epoch, node, until)
            SELECT id, epoch, 'later#1', clock_timestamp() + interval '10 minutes' FROM {{schema}}.shard"
    );
    world.sql(&later).await;
    let node = world.spawn("a", &[]);
    until("it says so", async || {
        let log = world.log_of("a");
        log.contains("nodes of different versions") && log.contains("its_version=99")
    })
    .await;
    let cluster = world.connect().await;
    let nodes = cluster.nodes().await.unwrap();
    let later = nodes.iter().find(|node| node.name == "later").unwrap();
    assert_eq!(later.protocol, 99);
    let process = cluster.process(*pids_of(ShardId(0)).start());
    let refused = within(process.info()).await.unwrap_err();
    let ClusterError::Refused { kind, message } = refused else {
        panic!("{refused}");
    };
    assert_eq!(kind, Refusal::Invalid);
    assert!(message.contains("another version"), "{message}");
    drop(node);
}
