//! A worker with clients in the same process: who is served, who waits for a sync, who is dropped.
//!
//! What the sockets carry is looked at; nothing here depends on how fast the worker is. The protocol's own tests are
//! elsewhere.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use azekura::record::memory::tiny::TinyDb;

use super::super::control::Limits;
use super::*;
use crate::memcached::{Settings, Transport};

struct Shop {
    control: Arc<Control>,
    service: Arc<Service>,
    inbox: Inbox,
    syncs: Syncs,
}

impl Shop {
    fn new(power: bool) -> Self {
        let settings = Settings {
            power,
            ..Settings::default()
        };
        let limits = Limits {
            connections_max: 100,
            idle_s: 0,
            stall_s: 0,
            per_address_max: 100,
            operator_connections: 0,
            operators: Vec::new(),
            grace_s: 1,
            buffers_max: 1 << 20,
            slow_ms: 0,
        };
        Self {
            control: Control::new(limits).unwrap(),
            service: Arc::new(Service::new(Arc::new(TinyDb::new().unwrap()), settings)),
            inbox: Inbox::new().unwrap(),
            syncs: Syncs::default(),
        }
    }

    fn worker(&self) -> Worker<'_> {
        let inbox = (0, &self.inbox);
        let mut worker = Worker::new(&self.control, inbox, &self.syncs, 1, &self.service).unwrap();
        worker.apply_limits();
        worker
    }

    /// A client of `worker` with a number.
    fn client(&self, worker: &mut Worker<'_>) -> (UnixStream, usize) {
        let (ours, client) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        client.set_nonblocking(true).unwrap();
        self.inbox.send(Arrival {
            stream: Stream::Unix(ours),
            session: Session::new(Arc::clone(&self.service), Transport::Unix),
            counted: Counted::admit(&self.control, None).unwrap(),
        });
        let next = worker.free.last().copied().unwrap_or(worker.slots.len());
        worker.accept_arrivals();
        (client, next)
    }
}

fn turn(worker: &mut Worker<'_>, number: usize) {
    let slot = worker.slots[number].as_mut().unwrap();
    slot.connection.changed(true, false);
    worker.advance(number);
}

#[test]
fn who_waits_for_a_sync_is_answered_after_it_and_others_meanwhile() {
    let shop = Shop::new(true);
    let mut worker = shop.worker();
    let (mut writes, first) = shop.client(&mut worker);
    let (mut reads, second) = shop.client(&mut worker);
    // More than one reading.
    let heap = b"set a 0 0 1\r\nb\r\n".repeat(READ_LEN / 16 + 10);
    writes.write_all(&heap).unwrap();
    turn(&mut worker, first);
    worker.commit();
    // There may be others to share it.
    assert_eq!(worker.timeout(false), Duration::ZERO);
    worker.commit();
    assert_eq!(worker.waiting, [(1, first)]);
    assert_eq!(worker.timeout(false), TICK);
    let mut received = vec![0; 2 * READ_LEN];
    reads.write_all(b"get a\r\n").unwrap();
    turn(&mut worker, second);
    let len = reads.read(&mut received).unwrap();
    assert_eq!(&received[..len], b"VALUE a 0 1\r\nb\r\nEND\r\n");
    worker.release();
    assert!(writes.read(&mut received).is_err());
    // Later requests wait for the next one.
    let syncing = || {
        shop.syncs.end();
        let meter = Meter::new(&shop.service, Arc::clone(&shop.control.slow_requests));
        shop.syncs
            .run(&shop.service, meter, |_| shop.inbox.waker.wake());
    };
    syncing();
    worker.release();
    let first_len = writes.read(&mut received).unwrap();
    worker.commit();
    worker.commit();
    assert_eq!(worker.waiting, [(2, first)]);
    syncing();
    worker.release();
    worker.commit();
    assert!(worker.waiting.is_empty() && worker.committing.is_empty());
    let len = first_len + writes.read(&mut received).unwrap();
    assert_eq!(len, heap.len() / 16 * b"STORED\r\n".len());
}

#[test]
fn who_is_read_before_its_turn_is_answered_as_ever() {
    let shop = Shop::new(false);
    let mut worker = shop.worker();
    let mut received = [0; 100];
    let mut clients: Vec<_> = (0..3).map(|_| shop.client(&mut worker)).collect();
    let long = format!("set l 0 0 3000\r\n{:03000}\r\n", 0);
    let asked = ["set k 0 0 1\r\nx\r\nget k\r\nge", &long, "get k\r\n"];
    for ((client, number), asked) in clients.iter_mut().zip(asked) {
        client.write_all(asked.as_bytes()).unwrap();
        let slot = worker.slots[*number].as_mut().unwrap();
        slot.connection.changed(true, false);
        assert!(worker.read_early(*number));
    }
    // One is dropped, and another has its number.
    let (_, third) = clients[2];
    worker.drop_connection(third);
    let (mut fresh, number) = shop.client(&mut worker);
    assert_eq!(number, third);
    worker.serve_early();
    assert!(fresh.read(&mut received).is_err());
    let answers = ["STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n", "STORED\r\n"];
    for ((client, _), answer) in clients.iter_mut().zip(answers) {
        let len = client.read(&mut received).unwrap();
        assert_eq!(&received[..len], answer.as_bytes());
    }
    // A connection with an incomplete request, or that sent much last time, is read in its turn.
    for ((client, number), rest) in clients.iter_mut().zip(["t k\r\n", "get k\r\n"]) {
        client.write_all(rest.as_bytes()).unwrap();
        let slot = worker.slots[*number].as_mut().unwrap();
        slot.connection.changed(true, false);
        assert!(!worker.read_early(*number));
        worker.advance(*number);
        let len = client.read(&mut received).unwrap();
        assert_eq!(&received[..len], b"VALUE k 0 1\r\nx\r\nEND\r\n");
    }
    // And so until it asks for little again.
    let (client, number) = &mut clients[1];
    client.write_all(b"get k\r\n").unwrap();
    let slot = worker.slots[*number].as_mut().unwrap();
    slot.connection.changed(true, false);
    assert!(worker.read_early(*number));
}

#[test]
fn who_wants_another_turn_is_noted_once() {
    let shop = Shop::new(false);
    let mut worker = shop.worker();
    let (mut client, number) = shop.client(&mut worker);
    for n in 0..5000 {
        let set = format!("set {n} 0 0 1 noreply\r\nb\r\n");
        client.write_all(set.as_bytes()).unwrap();
        turn(&mut worker, number);
    }
    // A walk over many records that shows none of them.
    client.write_all(b"keys none 1\r\n").unwrap();
    turn(&mut worker, number);
    turn(&mut worker, number);
    assert_eq!(worker.again, [number]);
    // One that is dropped leaves no queued turn.
    worker.drop_connection(number);
    assert!(worker.again.is_empty());
}

#[test]
fn who_holds_little_stays_when_another_holds_too_much() {
    let shop = Shop::new(false);
    let mut worker = shop.worker();
    let (mut large, first) = shop.client(&mut worker);
    large.write_all(b"set a 0 0 100000\r\n").unwrap();
    large.write_all(&vec![b'x'; 60_000]).unwrap();
    turn(&mut worker, first);
    worker.turn.held_max = worker.turn.held;
    // The second brings them over the bound.
    let (mut small, second) = shop.client(&mut worker);
    small.write_all(b"set b 0 0 1\r\n").unwrap();
    turn(&mut worker, second);
    let mut received = [0; 100];
    let len = large.read(&mut received).unwrap();
    assert!(received[..len].starts_with(b"SERVER_ERROR out of memory"));
    assert!(worker.slots[first].is_none());
    small.write_all(b"c\r\n").unwrap();
    turn(&mut worker, second);
    let len = std::io::Read::read(&mut small, &mut received).unwrap();
    assert_eq!(&received[..len], b"STORED\r\n");
    assert_eq!(worker.turn.held, 0);
}
