//! What `rtscope collect` writes: nothing that names a person or a machine, and everything that the diagnosis needs.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{folder as room, output, text};

const MACHINES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/doctor");

/// The names of all machines in `fixtures/doctor`.
pub(crate) fn machines() -> Vec<String> {
    let entries = fs::read_dir(MACHINES).expect("machines").flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)).collect()
}

/// Writes the files of a machine below a folder. `fixtures/doctor/README.md` has the format.
pub(crate) fn unpack(machine: &str, room: &Path) -> PathBuf {
    let root = room.join(machine);
    let text = fs::read_to_string(format!("{MACHINES}/{machine}.txt")).expect("text");
    let text = text.replace("\\0", "\0");
    for file in format!("\n{}", text.trim_end()).split("\n== ").skip(1) {
        let (path, content) = match file.split_once('\n') {
            None => (file, String::new()),
            Some((path, content)) => match content.strip_suffix('\\') {
                Some(cut) => (path, cut.to_owned()),
                None => (path, format!("{content}\n")),
            },
        };
        put(&root, path, &content);
    }
    root
}

fn put(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("made");
    fs::write(path, content).expect("written");
}

fn add(root: &Path, path: &str, content: &str) {
    let old = fs::read_to_string(root.join(path)).expect("text");
    put(root, path, &(old + content));
}

/// The codes of the findings, for a deadline so short that everything matters.
fn codes(room: &Path, source: &str) -> BTreeSet<String> {
    let out = output(room, &format!("doctor --deadline 1us --json {source}"));
    let document: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let findings = document["findings"].as_array().expect("findings");
    let code = |finding: &Value| finding["code"].as_str().expect("a code").to_owned();
    findings.iter().map(code).collect()
}

/// What is collected of a folder, in a file beside it.
fn collected(room: &Path, root: &Path) -> String {
    let out = output(room, &format!("collect --root {} --out collected.json", root.display()));
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    fs::read_to_string(room.join("collected.json")).expect("a file")
}

#[test]
fn every_machine_has_the_same_findings_in_what_is_collected() {
    let room = room();
    let mut seen = BTreeSet::new();
    for machine in machines() {
        let root = unpack(&machine, room.path());
        let _ = collected(room.path(), &root);
        let here = codes(room.path(), &format!("--root {}", root.display()));
        assert_eq!(codes(room.path(), "--from collected.json"), here, "{machine}");
        seen.extend(here);
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn a_host_named_like_a_setting_has_the_same_findings() {
    let room = room();
    for machine in ["server-contradictions", "raspberry-pi-4", "raspberry-pi-5-rt"] {
        let root = unpack(machine, room.path());
        for host in ["raspberrypi", "realtime", "irq", "priority", "preempt", "isolcpus"] {
            put(&root, "proc/sys/kernel/hostname", host);
            let _ = collected(room.path(), &root);
            let here = codes(room.path(), &format!("--root {}", root.display()));
            assert_eq!(codes(room.path(), "--from collected.json"), here, "{machine}, {host}");
        }
    }
}

#[test]
fn nothing_that_is_written_names_a_person_a_machine_a_disk_or_an_address() {
    let room = room();
    let root = unpack("server-isolated", room.path());
    put(&root, "proc/sys/kernel/hostname", "robolab7\n");
    add_boot(&root);
    add_settings(&root);
    add_devices(&root);
    let written = collected(room.path(), &root).to_lowercase();
    let secrets = [
        "robolab7",
        "maria",
        "joe",
        "bob",
        "1042",
        "aa-bb-cc",
        "aabbcc",
        "aabb.ccdd",
        "10.0.0.",
        "10.1.1",
        "fe80",
        "2001:db8",
        "secret",
        "hunter2",
        "serial5",
        "ghp_",
        "s6pun",
        "5ec2e75ec2",
    ];
    for secret in secrets {
        let place = written.find(secret);
        let around = place.map(|at| written[at.saturating_sub(60)..].chars().take(120).collect());
        assert_eq!(around, None::<String>, "{secret}");
    }
    // What matters is still there.
    for kept in ["isolcpus=4-7", "@audio - rtprio 95", "defaultlimitrtprio=9", "limits.d/1.conf"] {
        assert!(written.contains(kept), "{kept}");
    }
}

fn add_boot(root: &Path) {
    put(
        root,
        "proc/cmdline",
        "quiet isolcpus=4-7 BOOTIF=01-aa-bb-cc-dd-ee-01 ip6=fe80::2 dns=10.0.0.3:53 range=10.1.1.1-10.1.1.9 \
         rd.lvm.lv=RoboLab7/root init=/home/maria/init user=maria mac=aabbccddee02 eth=aabb.ccdd.ee03 \
         nameserver=2001:db8::53 systemd.set_credential=pw:hunter2 note=\"from maria to joe\" login joe \
         root=UUID=SECRET-0 ip=10.0.0.4::10.0.0.1:255.255.255.0:robolab7:eth0:off nfsroot=10.0.0.5:/maria\n",
    );
    put(
        root,
        "etc/default/grub",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet BOOTIF=01-aa-bb-cc-dd-ee-21\" # by joe\nGRUB_PASSWORD=SECRETPW # maria\n",
    );
    put(root, "etc/default/grub.d/maria.cfg", "GRUB_X=joe\n");
    put(
        root,
        "boot/extlinux/extlinux.conf",
        "label robolab7\n append root=x BOOTIF=01-aa-bb-cc-dd-ee-11\n",
    );
    put(
        root,
        "boot/armbianEnv.txt",
        "rootdev=UUID=SECRET-1\nextraargs=nosmt ip=10.0.0.7 user=joe\n",
    );
    put(
        root,
        "etc/default/u-boot",
        "U_BOOT_ROOT=\"root=UUID=SECRET-2\"\nU_BOOT_PARAMETERS=\"ro nfsroot=10.0.0.8:/maria\" # by joe\n",
    );
    put(root, "etc/u-boot-menu/conf.d/maria.conf", "U_BOOT_MENU_LABEL=\"robolab7 of joe\"\n");
    put(root, "usr/share/u-boot-menu/conf.d/joe.conf", "U_BOOT_PARAMETERS=\"serial=SERIAL5\"\n");
    let release = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).expect("a release");
    let config = format!("boot/config-{}", release.trim());
    let options = "CONFIG_MODULE_SIG_KEY=\"/home/maria/sign.pem\"\nCONFIG_INITRAMFS_SOURCE=\"/home/maria/x\"\n";
    put(root, &config, &format!("CONFIG_PREEMPT_RT=y\n{options}"));
}

fn add_settings(root: &Path) {
    put(
        root,
        "etc/security/limits.d/maria.conf",
        "maria - rtprio 95\n  joe - rtprio 90\n@audio - rtprio 95 # for joes laptop\n@mariasgroup - nice 1\n",
    );
    put(root, "etc/security/limits.conf", "\tbob hard rtprio 80\n1042:1042 - rtprio 9\n");
    put(root, "etc/systemd/system.conf", "[Manager]\nDefaultEnvironment=\"TOKEN=ghp_SECRET\"\n");
    put(root, "etc/systemd/user.conf", "DefaultEnvironment=API_KEY=SECRET\n");
    put(root, "etc/systemd/system.conf.d/maria.conf", "[Manager]\nDefaultLimitRTPRIO=9\n");
    put(root, "etc/default/tlp", "DISK_DEVICES=\"ata-Samsung_S6PUNX0T123456\"\n");
    put(root, "etc/default/irqbalance", "IRQBALANCE_ARGS=\"--log=/home/maria/x\"\n");
    put(root, "etc/tuned/active_profile", "maria-profile\n");
    put(root, "boot/config.txt", "[0xSERIAL5]\n[pimaria]\nboard_serial=0xSERIAL5\n");
    put(root, "proc/swaps", "Filename Type Size Used Priority\n/home/maria/swap file 1 0 -2\n");
    // A control group of a user's session, and one of a container.
    let container = "docker/5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2";
    let groups =
        format!("0::/user.slice/user-1042.slice/app-joe.scope\n4:cpu,cpuacct:/{container}\n");
    put(root, "proc/self/cgroup", &groups);
    put(root, &format!("sys/fs/cgroup/cpu,cpuacct/{container}/cpu.rt_runtime_us"), "0\n");
    put(root, "etc/systemd/system/multi-user.target.wants/backup-joe@maria.service", "");
    put(root, "sys/fs/cgroup/user.slice/user-1042.slice/cpu.max", "max 100000\n");
}

fn add_devices(root: &Path) {
    add(
        root,
        "proc/interrupts",
        " 131: 5 0 0 0 0 0 0 0  IO-APIC 131-edge enxaabbccddee31\n 132: 5 0 0 0 0 0 0 0  IO-APIC 132-edge robolab7-dev\n 133: 5 0 0 0 0 0 0 0  IO-APIC 133-edge maria0-rx-0\n",
    );
    put(root, "proc/irq/131/smp_affinity_list", "0-3\n");
    put(root, "proc/irq/132/smp_affinity_list", "0-3\n");
    put(root, "proc/irq/133/smp_affinity_list", "0-3\n");
    for (id, name) in [
        (950, "RoboLab7-ctl"),
        (951, "irq/9-enxaabbccddee41"),
        (952, "napi/maria0-12"),
        (953, "10.0.0.9-manager"),
    ] {
        let folder = format!("proc/{id}");
        let stat = format!(
            "{id} ({name}) S 1 0 0 0 -1 4194304 0 0 0 0 0 0 0 0 -81 0 1 0 50 {}80 1 0 0 0 0 0 0 0 0 0 0 0\n",
            "0 ".repeat(16)
        );
        put(root, &format!("{folder}/task/{id}/stat"), &stat);
        let status = format!("Name:\t{name}\nCpus_allowed_list:\t0-7\n");
        put(root, &format!("{folder}/task/{id}/status"), &status);
        put(root, &format!("{folder}/comm"), &format!("{name}\n"));
        put(root, &format!("{folder}/cmdline"), "/home/maria/bin/x\0--token=SECRET\0");
    }
    put(root, "sys/class/net/enxaabbccddee32/address", "aa:bb:cc:dd:ee:32\n");
    // A name that somebody chose, which the kernel gives to its threads as well.
    put(root, "sys/class/net/maria0/device/vendor", "0x8086\n");
    put(root, "proc/device-tree/model", "Board of robolab7\0");
    put(root, "etc/machine-id", "5ec2e75ec2e75ec2e75ec2e75ec2e7aa\n");
}

#[test]
fn a_folder_without_a_kernel_is_told_of() {
    let room = room();
    let out = output(room.path(), "collect --root . --out collected.json");
    assert_eq!(out.status.code(), Some(0));
    assert!(text(&out.stderr).contains("found no kernel below ."), "{}", text(&out.stderr));
}
