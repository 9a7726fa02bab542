//! Block devices for tests: files that the system shows as devices.
//!
//! They need root and loop devices. Where there are none a notice states that nothing was tried, and the test has
//! nothing to look at. A device is given back when it is dropped. The tests of devices stand here, too.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::error::refusal;
use crate::io::aligned::{ALIGNMENT, AlignedBuf};
use crate::io::direct::DirectFile;

/// A device over a file of its own.
#[derive(Debug)]
pub(in crate::io) struct LoopDevice {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl LoopDevice {
    /// A device of `size` bytes in sectors of `sector`.
    pub(in crate::io) fn new(size: u64, sector: u64) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("device");
        std::fs::File::create(&file)
            .and_then(|file| file.set_len(size))
            .unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&file)
            .output();
        match made {
            Ok(made) if made.status.success() => Some(Self {
                path: PathBuf::from(String::from_utf8_lossy(&made.stdout).trim()),
                _folder: folder,
            }),
            Ok(made) => {
                notice(&String::from_utf8_lossy(&made.stderr));
                None
            }
            Err(error) => {
                notice(&error.to_string());
                None
            }
        }
    }

    pub(in crate::io) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup")
            .arg("--detach")
            .arg(&self.path)
            .output();
    }
}

#[expect(
    clippy::print_stderr,
    reason = "a test that could not be run must be seen"
)]
fn notice(why: &str) {
    eprintln!("notice: no block device was tried: {}", why.trim());
}

const SIZE: u64 = 4 << 20;

/// Opens the device for writing when it was just closed: a process that another test begins has what is open here, too,
/// until it runs its program.
fn reopened(device: &LoopDevice) -> File {
    for _ in 0..1000 {
        match File::open(device.path(), Access::Write) {
            Err(error) if error.kind() == Kind::Locked => {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            other => return other.unwrap(),
        }
    }
    panic!("the device stays in use");
}

/// What files and direct files alike do on a device.
fn is_used_as_a_file_is(storage: &dyn Storage) {
    assert_eq!(
        (storage.size().unwrap(), storage.allocated().unwrap()),
        (SIZE, SIZE)
    );
    let bytes: Vec<u8> = (0..40_000u32).map(|at| (at >> 3) as u8 | 1).collect();
    storage.write_at(5000, &bytes).unwrap();
    storage.write_durably(1 << 20, &[7; 8192]).unwrap();
    storage.sync().unwrap();
    storage.drop_cache().unwrap();
    // Back as zeros, to the byte, and its neighbours stay.
    storage.discard(9999, 20_000).unwrap();
    storage.discard(9999, 0).unwrap();
    storage.discard(40, 50).unwrap();
    let mut seen = vec![0; 40_000];
    storage.read_at(5000, &mut seen).unwrap();
    let mut wanted = bytes;
    wanted[4999..24_999].fill(0);
    assert!(seen == wanted);
    storage.allocate(4096, SIZE - 4096).unwrap();
    storage.resize(SIZE).unwrap();
    storage.read_at(1 << 20, &mut seen[..8192]).unwrap();
    assert!(seen[..8192] == [7; 8192]);
    refusal(storage.read_at(SIZE - 1, &mut [0; 2]), Kind::Corrupted);

    let name = storage.path().display();
    assert_eq!(
        storage.resize(2 * SIZE).unwrap_err().to_string(),
        format!(
            "full: a device does not grow at {name} (found 8 MiB, expected 4 MiB); \
             use no more than it has, or a larger one"
        )
    );
    assert_eq!(
        storage.resize(SIZE / 2).unwrap_err().to_string(),
        format!(
            "invalid: a device does not shrink at {name} (found 2 MiB, expected 4 MiB); \
             use all of it, or a part by a region"
        )
    );
    refusal(storage.allocate(SIZE, 1), Kind::Full);
}

#[test]
fn a_device_is_used_as_a_file_is_through_the_cache_and_past_it() {
    for sector in [512, 4096] {
        let Some(device) = LoopDevice::new(SIZE, sector) else {
            return;
        };
        let direct = DirectFile::open(device.path(), Access::Write).unwrap();
        assert_eq!(direct.alignment(), ALIGNMENT);
        is_used_as_a_file_is(&direct);
        drop(direct);
        let file = reopened(&device);
        is_used_as_a_file_is(&file);
        let map = file.map(SIZE).unwrap();
        map.store_u64(8, 0x0102_0304_0506_0708);
        let mut seen = [0; 8];
        file.read_at(8, &mut seen).unwrap();
        assert_eq!(seen, [8, 7, 6, 5, 4, 3, 2, 1]);
    }
}

#[test]
fn one_writer_has_a_device_and_readers_share_it() {
    let Some(device) = LoopDevice::new(SIZE, 512) else {
        return;
    };
    let writer = DirectFile::open(device.path(), Access::Write).unwrap();
    let second = File::open(device.path(), Access::Write).unwrap_err();
    assert_eq!(
        second.to_string(),
        format!(
            "locked: the device is in use at {}; unmount it, or stop the program that has it open",
            device.path().display()
        )
    );
    let reader = File::open(device.path(), Access::Read).unwrap();
    assert!(reader.has_writer());
    let mut bytes = AlignedBuf::zeroed(4096, ALIGNMENT).unwrap();
    bytes.fill(9);
    writer.write_at(0, &bytes).unwrap();
    reader.drop_cache().unwrap();
    let mut seen = [0; 4096];
    reader.read_at(0, &mut seen).unwrap();
    assert_eq!(seen, [9; 4096]);
    drop(writer);
    drop(reopened(&device));
    assert!(!reader.has_writer());
}

#[test]
fn what_a_device_has_after_its_last_block_is_not_used() {
    let Some(device) = LoopDevice::new(SIZE + 3 * 512, 512) else {
        return;
    };
    let direct = DirectFile::open(device.path(), Access::Write).unwrap();
    assert_eq!(direct.size().unwrap(), SIZE);
    direct.resize(SIZE).unwrap();
    direct.write_at(SIZE - 1, &[1]).unwrap();
    refusal(direct.write_at(SIZE, &[1]), Kind::Invalid);
    drop(direct);
    let file = File::open(device.path(), Access::Read).unwrap();
    assert_eq!(file.size().unwrap(), SIZE + 3 * 512);
}

#[test]
fn a_device_is_not_made_nor_replaced_and_links_to_it_lie_where_devices_do() {
    let Some(device) = LoopDevice::new(SIZE, 512) else {
        return;
    };
    refusal(File::create(device.path()), Kind::Mismatch);
    refusal(File::create_replacing(device.path()), Kind::Mismatch);
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let refused = File::open(&link, Access::Write).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("(found a symbolic link, expected a file)"),
        "{refused}"
    );
    // The system makes such links itself.
    let link = Path::new("/dev").join(format!("azekura-test-{}", std::process::id()));
    std::os::unix::fs::symlink(device.path(), &link).unwrap();
    let opened = File::open(&link, Access::Write);
    std::fs::remove_file(&link).unwrap();
    assert_eq!(opened.unwrap().path(), link);
}
