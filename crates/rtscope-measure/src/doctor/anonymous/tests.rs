use rtscope_model::{
    cpu::CpuSet,
    environment::{Irq, Kernel, NetworkCard, RealTimeThread},
    schedule::Policy,
};

use super::*;

const HOST: &str = "workbench7";

fn hidden_of(environment: Environment) -> Environment {
    anonymous(&MachineFacts { environment, ..MachineFacts::default() }).environment
}

fn files(files: &[(&str, &str)]) -> BTreeMap<String, FileReading> {
    let files = files
        .iter()
        .map(|(path, text)| ((*path).to_owned(), FileReading::Text((*text).to_owned())))
        .collect();
    let environment = Environment { host: HOST.to_owned(), ..Environment::default() };
    anonymous(&MachineFacts { files, environment, ..MachineFacts::default() }).files
}

fn text(path: &str, text: &str) -> String {
    match files(&[(path, text)]).into_values().next() {
        Some(FileReading::Text(text)) => text,
        other => format!("{other:?}"),
    }
}

#[test]
fn a_command_line_keeps_only_the_values_that_rules_read() {
    let line = |line: &str| boot::command_line(line, HOST);
    assert_eq!(
        line(
            "quiet isolcpus=managed_irq,2-3 nohz-full=2-3 console=ttyS0,115200n8 idle=poll preempt=full"
        ),
        "quiet isolcpus=managed_irq,2-3 nohz-full=2-3 console=ttyS0,115200n8 idle=poll preempt=full"
    );
    assert_eq!(
        line("isolcpus=2 isolcpus=3 processor.max_cstate=1"),
        "isolcpus=2 isolcpus=3 processor.max_cstate=1"
    );
    for secret in [
        "root=UUID=0a1b2c3d-1111-2222-3333-0123456789ab",
        "BOOTIF=01-aa-bb-cc-dd-ee-01",
        "init=/home/maria/init",
        "systemd.set_credential=pw:hunter2",
        "user=maria",
        "title=\"made by maria for acme\"",
        "dns=10.0.0.3:53",
    ] {
        let name = secret.split('=').next().unwrap_or_default();
        assert_eq!(line(secret), format!("{name}=(hidden)"));
    }
    for secret in
        ["aabb.ccdd.ee03", "/home/maria/init", "aabbccddee02", "fe80::2", "WorkBench7", "maria"]
    {
        assert_eq!(line(secret), HIDDEN, "{secret}");
    }
    assert_eq!(line("console=/home/maria/tty isolcpus=1/2"), "console=(hidden) isolcpus=1/2");
    assert_eq!(line("quiet nomodeset -- --addr 10.0.0.1"), "quiet nomodeset");
}

#[test]
fn files_of_boot_loaders_keep_only_the_command_line() {
    let grub = "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=3 ip=10.2.2.2\" # set by maria\nGRUB_PASSWORD=grub.pw\n\
                export MARIA";
    assert_eq!(
        text("etc/default/grub", grub),
        "GRUB_CMDLINE_LINUX_DEFAULT=\"quiet isolcpus=3 ip=(hidden)\"\nGRUB_PASSWORD=(hidden)"
    );
    // A line that goes on.
    assert_eq!(
        text("etc/default/grub", "GRUB_X=\"a\nisolcpus=3 maria\""),
        "GRUB_X=(hidden)\nisolcpus=3"
    );
    assert_eq!(
        text(
            "boot/extlinux/extlinux.conf",
            "label workbench7\n  append root=x isolcpus=1\n kernel /maria"
        ),
        "label (hidden)\nappend root=(hidden) isolcpus=1\nkernel (hidden)"
    );
    assert_eq!(
        text("boot/uEnv.txt", "ethaddr=aa:bb\ncmdline=isolcpus=1 user=maria\nnohz_full=1"),
        "ethaddr=(hidden)\ncmdline=isolcpus=1 user=(hidden)\nnohz_full=1"
    );
    assert_eq!(text("boot/grub2/grubenv", "kernelopts=root=x"), "");
    assert_eq!(
        text(
            "boot/config.txt",
            "[pi4]\n[0x12345678]\n[pi-maria]\nkernel=kernel8_rt.img\nboard_serial=0xAB\ndtparam=audio=on"
        ),
        "[pi4]\n[(hidden)]\n[(hidden)]\nkernel=kernel8_rt.img\nboard_serial=(hidden)\ndtparam=audio=on"
    );
    assert_eq!(text("boot/config.txt", "kernel=maria-rt.img"), "kernel=(hidden)-rt");
}

#[test]
fn limits_stay_without_users_comments_and_file_names() {
    let path = "etc/security/limits.d/maria.conf";
    let lines = "maria - rtprio 95\n  joe\t-  rtprio 90\n@audio - rtprio 95 # of joe\n@joes - memlock unlimited\n# joe\njoe";
    assert_eq!(
        text(path, lines),
        "(hidden) - rtprio 95\n(hidden) - rtprio 90\n@audio - rtprio 95\n@(hidden) - memlock unlimited\n(hidden)"
    );
    let names = |given: &[(&str, &str)]| files(given).into_keys().collect::<Vec<_>>();
    assert_eq!(
        names(&[
            ("etc/security/limits.d/joe.conf", ""),
            (path, ""),
            ("etc/default/grub.d/joe.cfg", "")
        ]),
        [
            "etc/default/grub.d/1.cfg",
            "etc/security/limits.d/1.conf",
            "etc/security/limits.d/2.conf"
        ]
    );
    let many: Vec<String> =
        (0..11).map(|n| format!("etc/security/limits.d/{n:02}joe.conf")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|path| (path.as_str(), "")).collect();
    assert_eq!(names(&many)[10], "etc/security/limits.d/11.conf");
}

#[test]
fn settings_keep_only_what_rules_read() {
    let systemd = "[Manager]\n DefaultLimitRTPRIO=99\nDefaultEnvironment=TOKEN=x\nCPUAffinity=0-3 5\nDefaultLimitCORE=joe";
    let kept = "[Manager]\nDefaultLimitRTPRIO=99\nCPUAffinity=0-3 5\nDefaultLimitCORE=(hidden)";
    assert_eq!(text("etc/systemd/system.conf", systemd), kept);
    assert_eq!(text("etc/systemd/user.conf", "DefaultEnvironment=API_KEY=x"), "");
    let balance =
        "IRQBALANCE_ARGS=\"--log=/home/maria/x\"\nIRQBALANCE_BANNED_CPULIST=4-7 # maria\nMARIA=1";
    let kept = "IRQBALANCE_ARGS=(hidden)\nIRQBALANCE_BANNED_CPULIST=4-7";
    assert_eq!(text("etc/default/irqbalance", balance), kept);
    assert_eq!(
        text("etc/default/cpufrequtils", "GOVERNOR=\"performance\""),
        "GOVERNOR=\"performance\""
    );
    assert_eq!(
        text("etc/tuned/active_profile", "realtime-maria maria"),
        "realtime(hidden) (hidden)"
    );
    assert!(files(&[("etc/default/tlp", "DISK_DEVICES=\"ata-X_S6PUNX0T\"")]).is_empty());
    assert_eq!(text("proc/swaps", "/home/maria/swap file 1 0 -2"), "(hidden) file 1 0 -2");
    let group = files(&[("sys/fs/cgroup/cpu/user.slice/user-1042.slice/cpu.rt_runtime_us", "0")]);
    let path = "sys/fs/cgroup/cpu/(hidden)/(hidden)/cpu.rt_runtime_us";
    assert_eq!(group.into_keys().collect::<Vec<_>>(), [path]);
}

#[test]
fn options_of_the_kernel_keep_no_texts() {
    let option = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let given = [
        ("PREEMPT_RT", "y"),
        ("HZ", "1000"),
        ("PHYSICAL_START", "0x1000000"),
        ("INITRAMFS_SOURCE", "/home/maria/initramfs"),
        ("MODULE_SIG_KEY", "maria"),
        ("BUILD_SALT", "1234"),
    ];
    let kernel = Kernel { config: given.map(option).into(), ..Kernel::default() };
    let config = hidden_of(Environment { kernel, ..Environment::default() }).kernel.config;
    let values: Vec<&str> = config.values().map(String::as_str).collect();
    assert_eq!(values, [HIDDEN, "1000", HIDDEN, HIDDEN, "0x1000000", "y"]);
}

fn irq(name: &str) -> Irq {
    Irq { name: name.to_owned(), ..Irq::default() }
}

fn card(name: &str) -> NetworkCard {
    NetworkCard { name: name.to_owned(), ..NetworkCard::default() }
}

fn thread(name: &str, kernel: bool) -> RealTimeThread {
    RealTimeThread {
        pid: 1,
        tid: 1,
        name: name.to_owned(),
        process: None,
        policy: Policy::Fifo,
        priority: 50,
        cpus: CpuSet::default(),
        kernel,
    }
}

#[test]
fn names_of_cards_threads_and_the_kernel_have_no_address_and_no_host() {
    let hidden = hidden_of(Environment {
        host: "WorkBench7.acme.example".to_owned(),
        kernel: Kernel {
            release: "6.1.0-workbench7-rt".to_owned(),
            version: "#1 SMP PREEMPT_RT root@10.3.3.3 Tue".to_owned(),
            config_source: Some("/boot/config-6.1.0-workbench7-rt".to_owned()),
            ..Kernel::default()
        },
        irqs: vec![
            irq("IO-APIC 131-edge enxaabbccddee31"),
            irq("eno1-TxRx-0"),
            irq("workbench7-dev"),
        ],
        real_time_threads: vec![
            thread("WORKBENCH7-ctl", false),
            thread("irq/9-enxaabbccddee41", true),
            thread("migration/0", true),
        ],
        network: vec![card("enxaabbccddee32")],
        ..Environment::default()
    });
    assert_eq!(hidden.host, "");
    assert_eq!(hidden.kernel.release, "6.1.0-(hidden)-rt");
    assert_eq!(hidden.kernel.config_source.as_deref(), Some("/boot/config-6.1.0-(hidden)-rt"));
    assert_eq!(hidden.kernel.version, "#1 SMP PREEMPT_RT (hidden) Tue");
    let irqs: Vec<&str> = hidden.irqs.iter().map(|irq| irq.name.as_str()).collect();
    assert_eq!(irqs, ["IO-APIC 131-edge enx", "eno1-TxRx-0", "(hidden)-dev"]);
    let threads: Vec<&str> =
        hidden.real_time_threads.iter().map(|thread| thread.name.as_str()).collect();
    assert_eq!(threads, ["(hidden)-ctl", "irq/9-enx", "migration/0"]);
    assert_eq!(hidden.network[0].name, "enx");
}

#[test]
fn names_of_cards_that_somebody_chose_are_hidden_wherever_the_kernel_puts_them() {
    for usual in [
        "eth0",
        "enp3s0",
        "enp1s0f0np0",
        "eno1",
        "end0",
        "ens33",
        "enP2p1s0",
        "wlan0",
        "wlp0s20f3",
        "can1",
        "lan3",
        "swp12",
        "usb0",
        "enu1u2",
        "ibp5s0",
        "enx001122334455",
    ] {
        assert!(words::is_usual_card(usual), "{usual}");
    }
    for chosen in
        ["maria0", "enmaria0", "eth-acme", "robot", "enpmaria", "lanjoe1", "enx00112233445"]
    {
        assert!(!words::is_usual_card(chosen), "{chosen}");
    }
    let hidden = hidden_of(Environment {
        host: "migration".to_owned(),
        machine_model: Some("Board of migration, 10.0.0.8".to_owned()),
        compatible: vec!["migration,board".to_owned()],
        network: vec![card("maria-uplink"), card("eth0")],
        irqs: vec![irq("maria-uplink-rx-0"), irq("eth0")],
        real_time_threads: vec![
            thread("napi/maria-uplink-8193", true),
            thread("irq/131-maria-u", true),
            thread("10.0.0.9-manager", true),
            thread("migration/0", true),
        ],
        ..Environment::default()
    });
    let names: Vec<&str> = hidden.network.iter().map(|card| card.name.as_str()).collect();
    assert_eq!(names, [HIDDEN, "eth0"]);
    let names: Vec<&str> = hidden.irqs.iter().map(|irq| irq.name.as_str()).collect();
    assert_eq!(names, ["(hidden)-rx-0", "eth0"]);
    let threads = hidden.real_time_threads.iter().map(|thread| thread.name.as_str());
    assert_eq!(
        threads.collect::<Vec<_>>(),
        ["napi/(hidden)-8193", "irq/131-(hidden)", "(hidden)-manager", "migration/0"]
    );
    assert_eq!(hidden.machine_model.as_deref(), Some("Board of (hidden), (hidden)"));
    assert_eq!(hidden.compatible, ["(hidden),board"]);
}

#[test]
fn boards_with_u_boot_keep_only_the_command_line() {
    let env = "rootdev=UUID=0a1b2c3d-1111-2222-3333-0123456789ab\nextraargs=isolcpus=3 ip=10.0.0.7\nethaddr=aa:bb";
    assert_eq!(
        text("boot/armbianEnv.txt", env),
        "rootdev=(hidden)\nextraargs=isolcpus=3 ip=(hidden)\nethaddr=(hidden)"
    );
    let menu =
        "U_BOOT_ROOT=\"root=UUID=x\"\nU_BOOT_PARAMETERS=\"ro quiet nfsroot=10.0.0.1:/x\" # joe";
    assert_eq!(
        text("etc/default/u-boot", menu),
        "U_BOOT_ROOT=(hidden)\nU_BOOT_PARAMETERS=\"ro quiet nfsroot=(hidden)\""
    );
    let own = "U_BOOT_PARAMETERS=\"${U_BOOT_PARAMETERS} $MARIA nosmt\"";
    let kept = files(&[("usr/share/u-boot-menu/conf.d/maria.conf", own)]);
    let kept: Vec<_> = kept.into_iter().collect();
    let text = "U_BOOT_PARAMETERS=\"${U_BOOT_PARAMETERS} (hidden) nosmt\"".to_owned();
    let path = "usr/share/u-boot-menu/conf.d/1.conf".to_owned();
    assert_eq!(kept, [(path, FileReading::Text(text))]);
}

#[test]
fn what_only_looks_like_an_address_stays() {
    for kept in [
        "isolcpus=domain,managed_irq,2-3,5",
        "6.12.9-rt7",
        "de:ad",
        "10-20-30",
        "0000:00:1f.2",
        "8000000.ethernet",
        "#202401101333 SMP",
    ] {
        assert_eq!(without_addresses(kept), kept);
    }
    for address in [
        "fe80::1234:5678:9abc:def0",
        "fe80::2",
        "192.168.0.1",
        "10.0.0.3:53",
        "00-11-22-33-44-55",
        "01-00-11-22-33-44-55",
        "aabb.ccdd.ee03",
        "aabbccddee02",
        "0a1b2c3d-1111-2222-3333-0123456789ab",
        "0a1b2c3d1111222233330123456789ab",
    ] {
        assert_eq!(without_addresses(address), HIDDEN, "{address}");
    }
    assert_eq!(without_addresses("10.1.1.1-10.1.1.9"), "(hidden)-(hidden)");
}

#[test]
fn a_host_named_like_a_setting_changes_nothing_of_the_kernel() {
    for host in ["realtime", "rt", "raspberrypi", "preempt", "smp", "rt7", "v8", "7", ""] {
        let release = "6.1.7-rt7-v8-realtime #1 SMP PREEMPT raspberrypi";
        assert_eq!(without_host(release, host), release, "{host}");
    }
    assert_eq!(
        without_host("pi spin /dev/pi pi_x PI", "pi"),
        "(hidden) spin /dev/pi pi_x (hidden)"
    );
    let limits = "Max realtime priority     95  95";
    let given = [("proc/self/limits".to_owned(), FileReading::Text(limits.to_owned()))];
    let environment = Environment { host: "priority".to_owned(), ..Environment::default() };
    let facts = MachineFacts { files: given.into(), environment, ..MachineFacts::default() };
    assert_eq!(anonymous(&facts).text("proc/self/limits"), Some(limits));
}
