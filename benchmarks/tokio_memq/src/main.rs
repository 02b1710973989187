//! One workload on tokio-memq's published crate, for the table of `perf_runner`.
//!
//!     beside PRODUCERS CONSUMERS BYTES COUNT BATCH KEPT
//!
//! Every producer copies a payload for each message, and every consumer gets every message, one at
//! a time. Consumers do not look at values, as that would copy them once more: this favours the
//! crate. Prints messages per second as one JSON object.

use std::time::{Duration, Instant};
use tokio_memq::{AsyncMessagePublisher, MessageQueue, MessageSubscriber, TopicOptions};

const TOPIC: &str = "perf";
/// A consumer that hears nothing for so long has lost what is missing.
const QUIET: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() {
    let told: Vec<usize> = std::env::args()
        .skip(1)
        .map(|one| one.parse().expect("a number"))
        .collect();
    let [producers, consumers, size, count, batch, kept] = told[..] else {
        panic!("beside PRODUCERS CONSUMERS BYTES COUNT BATCH KEPT");
    };
    let queue = MessageQueue::new();
    let options = TopicOptions { max_messages: Some(kept), ..Default::default() };
    queue.create_topic(TOPIC.to_string(), options).await.expect("a topic");

    let expected = producers * count;
    let mut consuming = Vec::new();
    for _ in 0..consumers {
        let subscriber = queue.subscriber(TOPIC.to_string()).await.expect("a subscriber");
        consuming.push(tokio::spawn(async move {
            let (mut seen, mut last) = (0, Instant::now());
            while seen < expected {
                match tokio::time::timeout(QUIET, subscriber.recv()).await {
                    Ok(Ok(_)) => {
                        seen += 1;
                        last = Instant::now();
                    }
                    _ => break,
                }
            }
            (seen, last)
        }));
    }

    let start = Instant::now();
    let mut producing = Vec::new();
    for _ in 0..producers {
        let publisher = queue.publisher(TOPIC.to_string());
        let payload = vec![0u8; size];
        producing.push(tokio::spawn(async move {
            if batch == 1 {
                for _ in 0..count {
                    publisher.publish(payload.clone()).await.expect("published");
                }
            } else {
                for _ in 0..count / batch {
                    let values = vec![payload.clone(); batch];
                    publisher.publish_batch(values).await.expect("published");
                }
            }
        }));
    }
    for one in producing {
        one.await.expect("a producer");
    }
    let published = start.elapsed().as_secs_f64();

    let (mut delivered, mut end) = (0, start);
    for one in consuming {
        let (seen, last) = one.await.expect("a consumer");
        delivered += seen;
        end = end.max(last);
    }
    println!(
        "{{\"published\": {}, \"delivered\": {}, \"lost\": {}}}",
        expected as f64 / published,
        delivered as f64 / (end - start).as_secs_f64(),
        expected * consumers - delivered,
    );
}
