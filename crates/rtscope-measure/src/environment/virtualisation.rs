//! Whether something stands between the kernel and the hardware, and what.
//!
//! A hypervisor may stop a CPU at any time and the guest can't see when; a container shares the host's
//! kernel and may have fewer CPUs and permissions. What hides itself well is not recognised.

use rtscope_sys::tree::Tree;

use super::{
    machine::dmi,
    text::{value, values},
};

/// The word for a hypervisor that shows itself but not its name.
const UNNAMED: &str = "virtual machine";

/// What was recognised, the outer first: `kvm`, `vmware, docker`; none on bare metal.
pub(super) fn recognise(tree: &Tree, cpuinfo: &str, clocks: &[String]) -> Option<String> {
    let found = [hypervisor(tree, cpuinfo, clocks), container(tree)];
    let words: Vec<String> = found.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Names in DMI (vendor and product of system, board and BIOS, joined) by what they stand for. Clouds
/// sell bare metal under the same names.
const DMI: [(&str, &str, bool); 17] = [
    ("VMware", "vmware", false),
    ("VirtualBox", "virtualbox", false),
    ("innotek GmbH", "virtualbox", false),
    ("Parallels", "parallels", false),
    ("BHYVE", "bhyve", false),
    ("Bochs", "qemu", false),
    ("QEMU", "qemu", false),
    ("KVM", "kvm", false),
    ("Xen", "xen", false),
    ("Microsoft Corporation Virtual Machine", "hyper-v", false),
    ("Apple Virtualization", "apple", false),
    ("crosvm", "crosvm", false),
    ("ACRN", "acrn", false),
    ("OpenStack", "openstack", true),
    ("Amazon EC2", "amazon", true),
    ("Google Compute Engine", "google", true),
    ("Alibaba Cloud", "alibaba", true),
];

/// Makers in the header of the ACPI table FACP (root only), for hypervisors without DMI.
const ACPI: [(&str, &str); 5] = [
    ("FIRECK", "firecracker"),
    ("CLOUDH", "cloud-hypervisor"),
    ("CROSVM", "crosvm"),
    ("BOCHS", "qemu"),
    ("XEN", "xen"),
];

/// Clock sources that only a hypervisor offers.
const CLOCKS: [(&str, &str); 4] = [
    ("kvm-clock", "kvm"),
    ("hyperv_clocksource_tsc_page", "hyper-v"),
    ("hyperv_clocksource_msr", "hyper-v"),
    ("xen", "xen"),
];

fn hypervisor(tree: &Tree, cpuinfo: &str, clocks: &[String]) -> Option<String> {
    if tree.read("proc/sys/kernel/osrelease").is_ok_and(|text| text.contains("microsoft")) {
        return Some("wsl".to_owned());
    }
    if let Ok(kind) = tree.read("sys/hypervisor/type") {
        return Some(kind);
    }
    let flags = values(cpuinfo, "flags").next();
    let flagged = flags.map(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor"));
    let clock = CLOCKS.iter().find(|(name, _)| clocks.iter().any(|clock| clock == name));
    let clock = clock.map(|(_, word)| *word);
    let named =
        from_dmi(tree, flagged).or_else(|| from_acpi(tree)).or_else(|| from_device_tree(tree));
    let word = match (named, clock) {
        // QEMU emulates, or lends its hardware to KVM: the clock tells.
        (Some("qemu"), Some("kvm")) => Some("kvm"),
        (Some(UNNAMED) | None, Some(clock)) => Some(clock),
        (named, _) => named,
    };
    word.or_else(|| (flagged == Some(true)).then_some(UNNAMED)).map(str::to_owned)
}

/// `flagged`: whether the CPU says that a hypervisor is there; none where CPUs can't say.
fn from_dmi(tree: &Tree, flagged: Option<bool>) -> Option<&'static str> {
    let product = dmi(tree, "product_name").unwrap_or_default();
    let names = ["sys_vendor", "product_name", "board_vendor", "board_name", "bios_vendor"];
    let names: Vec<String> = names.iter().filter_map(|name| dmi(tree, name)).collect();
    let names = names.join(" ");
    let metal = product.contains(".metal") || flagged == Some(false);
    DMI.iter().find(|(name, _, cloud)| names.contains(name) && !(*cloud && metal)).map(|row| row.1)
}

fn from_acpi(tree: &Tree) -> Option<&'static str> {
    let table = tree.read_bytes("sys/firmware/acpi/tables/FACP").ok()?;
    let maker = String::from_utf8_lossy(table.get(10..16)?).trim().to_owned();
    ACPI.iter().find(|(name, _)| *name == maker).map(|(_, word)| *word)
}

fn from_device_tree(tree: &Tree) -> Option<&'static str> {
    let root = "proc/device-tree";
    let compatible = tree.read(format!("{root}/hypervisor/compatible")).unwrap_or_default();
    let known = [("kvm", "kvm"), ("xen", "xen"), ("vmware", "vmware")];
    if let Some((_, word)) = known.into_iter().find(|(name, _)| compatible.contains(name)) {
        return Some(word);
    }
    if tree.list(root).iter().any(|name| name.starts_with("fw-cfg")) {
        return Some("qemu");
    }
    let board = tree.read(format!("{root}/compatible")).unwrap_or_default();
    let dummy = board.contains("linux,dummy-virt") || board.contains("riscv-virtio");
    (dummy || !compatible.is_empty()).then_some(UNNAMED)
}

/// Containers that declare themselves by these names; verdicts know them.
const CONTAINERS: [&str; 8] =
    ["docker", "lxc", "lxc-libvirt", "openvz", "podman", "proot", "rkt", "systemd-nspawn"];

/// The word for any other container.
const UNNAMED_CONTAINER: &str = "container";

fn container(tree: &Tree) -> Option<String> {
    // Who sees the kernel's own threads is not in a container, whatever files its image brought.
    let sees_kernel = tree.read("proc/2/status").unwrap_or_default();
    if value(&sees_kernel, "Name") == Some("kthreadd") {
        return None;
    }
    let exists = |path: &str| tree.exists(path);
    let environ = tree.read("proc/1/environ").unwrap_or_default();
    let declared = environ.split('\0').find_map(|pair| pair.strip_prefix("container="));
    let declared = declared.map(str::to_owned).or_else(|| tree.read("run/systemd/container").ok());
    if let Some(name) = declared {
        let known = CONTAINERS.into_iter().find(|word| *word == name);
        return Some(known.unwrap_or(UNNAMED_CONTAINER).to_owned());
    }
    if exists("run/.containerenv") {
        return Some("podman".to_owned());
    }
    let groups = tree.read("proc/1/cgroup").unwrap_or_default();
    let known = [("kubepods", UNNAMED_CONTAINER), ("docker", "docker"), ("lxc", "lxc")];
    let known = known.into_iter().find(|(mark, _)| groups.contains(mark)).map(|(_, word)| word);
    known.or_else(|| exists(".dockerenv").then_some("docker")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::fake::FakeTree;

    const GUEST: &str = "processor\t: 0\nflags\t\t: fpu tsc hypervisor lahf_lm\n";
    const METAL: &str = "processor\t: 0\nflags\t\t: fpu tsc lahf_lm\n";

    fn with_dmi(vendor: &str, product: &str) -> FakeTree {
        let fake = FakeTree::new();
        fake.file("sys/class/dmi/id/sys_vendor", vendor);
        fake.file("sys/class/dmi/id/product_name", product);
        fake
    }

    fn told(fake: &FakeTree, cpuinfo: &str, clock: &str) -> Option<String> {
        recognise(&fake.tree, cpuinfo, &[clock.to_owned()])
    }

    #[test]
    fn dmi_names_the_hypervisor() {
        for (vendor, product, clock, expected) in [
            ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "kvm-clock", "kvm"),
            ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "tsc", "qemu"),
            ("VMware, Inc.", "VMware Virtual Platform", "tsc", "vmware"),
            ("innotek GmbH", "VirtualBox", "tsc", "virtualbox"),
            ("Microsoft Corporation", "Virtual Machine", "tsc", "hyper-v"),
            ("Amazon EC2", "m5.large", "kvm-clock", "amazon"),
            ("Hetzner", "vServer", "kvm-clock", "kvm"),
            ("Unheard Of", "Box", "tsc", UNNAMED),
        ] {
            let fake = with_dmi(vendor, product);
            assert_eq!(told(&fake, GUEST, clock).as_deref(), Some(expected), "{vendor} {product}");
        }
    }

    #[test]
    fn bare_metal_is_nothing() {
        for (vendor, product) in [
            ("Dell Inc.", "OptiPlex 3060"),
            ("Amazon EC2", "c5.metal"),
            ("Microsoft Corporation", "Surface Pro"),
        ] {
            assert_eq!(told(&with_dmi(vendor, product), METAL, "tsc"), None, "{vendor}");
        }
        // An Arm CPU has no flag to show.
        let arm = "processor\t: 0\nCPU part\t: 0xd0c\n";
        assert_eq!(told(&with_dmi("Amazon EC2", "m6g.metal"), arm, "arch_sys_counter"), None);
        let guest = told(&with_dmi("Amazon EC2", "m6g.large"), arm, "arch_sys_counter");
        assert_eq!(guest.as_deref(), Some("amazon"));
        let fake = FakeTree::new();
        let pi = include_str!("fixtures/cpuinfo-raspberry-pi-4");
        fake.file("proc/device-tree/compatible", "raspberrypi,4-model-b\0brcm,bcm2711\0");
        assert_eq!(told(&fake, pi, "arch_sys_counter"), None);
    }

    #[test]
    fn hypervisors_without_dmi_are_named() {
        let fake = FakeTree::new();
        fake.bytes("sys/firmware/acpi/tables/FACP", b"FACP\x14\x01\0\0\x06\x01FIRECKFCVMFADT");
        assert_eq!(told(&fake, GUEST, "kvm-clock").as_deref(), Some("firecracker"));
        let fake = FakeTree::new();
        fake.file("proc/device-tree/fw-cfg@9020000/compatible", "qemu,fw-cfg-mmio\0");
        assert_eq!(told(&fake, "", "arch_sys_counter").as_deref(), Some("qemu"));
        let fake = FakeTree::new();
        fake.file("sys/hypervisor/type", "xen\n");
        assert_eq!(told(&fake, METAL, "xen").as_deref(), Some("xen"));
        let fake = FakeTree::new();
        fake.file("proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n");
        assert_eq!(told(&fake, GUEST, "tsc").as_deref(), Some("wsl"));
    }

    #[test]
    fn containers_are_named_unless_the_kernels_threads_are_seen() {
        let fake = FakeTree::new();
        fake.file(".dockerenv", "");
        assert_eq!(told(&fake, METAL, "tsc").as_deref(), Some("docker"));
        fake.file("proc/1/cgroup", "0::/kubepods/besteffort/pod1\n");
        assert_eq!(told(&fake, GUEST, "kvm-clock").as_deref(), Some("kvm, container"));
        fake.file("proc/1/environ", "TERM=xterm\0container=lxc\0");
        assert_eq!(told(&fake, METAL, "tsc").as_deref(), Some("lxc"));
        fake.file("proc/1/environ", "container=unheard-of\0");
        assert_eq!(told(&fake, METAL, "tsc").as_deref(), Some("container"));
        fake.file("proc/2/status", "Name:\tkthreadd\nPid:\t2\n");
        assert_eq!(told(&fake, METAL, "tsc"), None);
        let fake = FakeTree::new();
        fake.file("run/.containerenv", "");
        assert_eq!(told(&fake, METAL, "tsc").as_deref(), Some("podman"));
    }
}
