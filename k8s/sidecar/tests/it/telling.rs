//! What a volume that is served tells the driver besides its faults, and what the driver tells it of the machine.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use gcsmount_k8s_contract::kernel_params;

use super::*;

fn ask(volume: &Volume) -> String {
    let mut stream = UnixStream::connect(volume.metrics_socket()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: unix\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn a_served_volume_tells_metrics_and_wishes_and_takes_them_back() {
    let scene = Scene::new(&[("told", Fate::ServedAfter(0))], LIMIT);
    let volume = scene.offer("told", &["enable-gcsfuse-kernel-params=true"]);
    until("it is served", || {
        volume.metrics_socket().exists() && volume.kernel_params().exists()
    })
    .await;
    let content = fs::read(volume.kernel_params()).unwrap();
    let wished = kernel_params::read(&content).unwrap().parameters;
    assert_eq!(
        wished,
        [Parameter::new(Name::MaxReadAheadKb, 1024).unwrap()]
    );
    let asked = volume.clone();
    let answer = tokio::task::spawn_blocking(move || ask(&asked))
        .await
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.ends_with("\r\n\r\nfs_ops_count 7\n"), "{answer}");
    scene.end_and_look(&volume).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_that_wants_nothing_is_told_nothing_and_what_was_told_before_is_taken_back() {
    let scene = Scene::new(&[("quiet", Fate::ServedAfter(1))], LIMIT);
    let volume = scene.base.volume("quiet");
    fs::create_dir(&volume.dir).unwrap();
    fs::write(volume.kernel_params(), "of the one before").unwrap();
    scene.offer("quiet", &["disable-metrics-for-gke:true"]);
    until("it is served", || scene.served() == 1).await;
    let asked = Arc::clone(&scene.mounter.asked);
    scene.end_and_look(&volume).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_says_what_the_driver_knows_of_the_machine() {
    let scene = Scene::new(&[("b", Fate::ServedAfter(0))], LIMIT);
    // The lines of section 2.3 of the publish order.
    let lines = "machine-type:a3-highgpu-8g\ndisable-autoconfig:false\n";
    fs::write(scene.base.flags_for_defaulting(), lines).unwrap();
    scene.offer("b", &[]);
    until("it is served", || scene.served() == 1).await;
    let machine = scene.mounter.machine.lock().unwrap().clone();
    assert_eq!(machine.as_deref(), Some("a3-highgpu-8g"));
    scene.end().await;
}

impl Scene {
    /// Ends, and sees that nothing of the volume stays behind.
    async fn end_and_look(mut self, volume: &Volume) {
        self.signals.send(()).await.unwrap();
        timeout(LIMIT, &mut self.running)
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(fs::read_dir(&volume.dir).unwrap().count(), 0);
    }
}
