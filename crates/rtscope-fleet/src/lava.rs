//! A job of LAVA that runs a plan: its definition in YAML.
//!
//! The device boots what its type needs, fetches one static rtscope, runs the plan, and prints LAVA's signals: a test case for
//! each figure and each requirement, and one for the run. The fields are those of `lava_common.schemas`; a test validates
//! definitions with that package.

use std::fmt::Write as _;

use rtscope_model::text::shell_word;

/// How a device gets its system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LavaSystem {
    /// LAVA's own QEMU: a disk, or a kernel with a file system in memory.
    Qemu {
        /// The architecture, as LAVA's template for QEMU names it: `amd64` or `arm64`.
        arch: String,
        kernel: Option<String>,
        ramdisk: Option<String>,
        rootfs: Option<String>,
        /// Further words of the kernel command line.
        kernel_args: String,
    },
    /// A board: LAVA serves the files by TFTP, and the boot loader fetches them.
    Board {
        /// LAVA's name of the boot method, as `u-boot`.
        method: String,
        kernel: String,
        /// Of the kernel, where the boot loader must know it: `image`, `zimage` or `uimage`.
        kernel_type: Option<String>,
        dtb: Option<String>,
        modules: Option<String>,
        ramdisk: Option<String>,
        nfsrootfs: Option<String>,
    },
}

/// What a job of LAVA is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LavaJob {
    pub name: String,
    pub device_type: String,
    pub tags: Vec<String>,
    pub system: LavaSystem,
    /// What the shell of the system shows when it waits.
    pub prompts: Vec<String>,
    /// A user without a password who is logged in, if the system asks for one.
    pub login: Option<String>,
    /// Address of a static rtscope for the device.
    pub program: String,
    pub program_sha256: Option<String>,
    /// The plan, as TOML.
    pub plan: String,
    /// How long the plan takes.
    pub plan_s: u64,
}

/// Minutes until a system is deployed and has booted.
const DEPLOY_MINUTES: u64 = 15;
const BOOT_MINUTES: u64 = 10;

/// The end of the plan in the shell's script: no plan may have such a line.
pub const PLAN_MARK: &str = "RTSCOPE_PLAN_ENDS_HERE";

impl LavaJob {
    /// The definition, as YAML.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        // A plan may take longer on a busy board, and is fetched and judged there.
        let test = self.plan_s / 60 + self.plan_s / 300 + 10;
        let all = DEPLOY_MINUTES + BOOT_MINUTES + test + 5;
        let mut fields = vec![
            ("device_type", text(&self.device_type)),
            ("job_name", text(&self.name)),
            (
                "timeouts",
                map(vec![
                    ("job", minutes(all)),
                    ("action", minutes(DEPLOY_MINUTES)),
                    ("connection", minutes(2)),
                ]),
            ),
            ("priority", text("medium")),
            ("visibility", text("public")),
        ];
        if !self.tags.is_empty() {
            fields.push(("tags", Yaml::List(self.tags.iter().map(|tag| text(tag)).collect())));
        }
        if let LavaSystem::Qemu { arch, .. } = &self.system {
            fields.push(("context", map(vec![("arch", text(arch))])));
        }
        let actions = vec![
            map(vec![("deploy", self.deploy())]),
            map(vec![("boot", self.boot())]),
            map(vec![("test", self.test(test))]),
        ];
        fields.push(("actions", Yaml::List(actions)));
        let mut yaml = String::new();
        map(fields).write(&mut yaml, 0);
        yaml
    }

    fn deploy(&self) -> Yaml {
        let file = |address: &str| vec![("url", text(address))];
        let packed = |address: &str| match packing(address) {
            Some(packing) => vec![("url", text(address)), ("compression", text(packing))],
            None => file(address),
        };
        let timeout = ("timeout", minutes(DEPLOY_MINUTES));
        match &self.system {
            LavaSystem::Qemu { kernel, ramdisk, rootfs, kernel_args, .. } => {
                let mut images = Vec::new();
                let mut image = |name: &'static str, address: &Option<String>, words: String| {
                    let Some(address) = address else { return };
                    let is_disk = name == "rootfs";
                    let mut fields = if is_disk { packed(address) } else { file(address) };
                    fields.insert(0, ("image_arg", text(&words)));
                    images.push((name, map(fields)));
                };
                image("kernel", kernel, format!("-kernel {{kernel}} --append \"{kernel_args}\""));
                image("ramdisk", ramdisk, "-initrd {ramdisk}".to_owned());
                image("rootfs", rootfs, "-drive format=raw,if=virtio,file={rootfs}".to_owned());
                map(vec![timeout, ("to", text("tmpfs")), ("images", map(images))])
            }
            LavaSystem::Board { kernel, kernel_type, dtb, modules, ramdisk, nfsrootfs, .. } => {
                let mut of_kernel = file(kernel);
                of_kernel.extend(kernel_type.iter().map(|kind| ("type", text(kind))));
                let mut fields = vec![timeout, ("to", text("tftp")), ("kernel", map(of_kernel))];
                fields.extend(dtb.iter().map(|dtb| ("dtb", map(file(dtb)))));
                fields.extend(modules.iter().map(|address| ("modules", map(packed(address)))));
                fields.extend(ramdisk.iter().map(|address| ("ramdisk", map(packed(address)))));
                fields.extend(nfsrootfs.iter().map(|address| ("nfsrootfs", map(packed(address)))));
                map(fields)
            }
        }
    }

    fn boot(&self) -> Yaml {
        let mut fields = vec![("timeout", minutes(BOOT_MINUTES))];
        match &self.system {
            LavaSystem::Qemu { .. } => {
                fields.extend([("method", text("qemu")), ("media", text("tmpfs"))]);
            }
            LavaSystem::Board { method, nfsrootfs, .. } => {
                let commands = if nfsrootfs.is_some() { "nfs" } else { "ramdisk" };
                fields.extend([("method", text(method)), ("commands", text(commands))]);
            }
        }
        if let Some(login) = &self.login {
            let login = vec![("login_prompt", text("login:")), ("username", text(login))];
            fields.push(("auto_login", map(login)));
        }
        fields.push(("prompts", Yaml::List(self.prompts.iter().map(|one| text(one)).collect())));
        map(fields)
    }

    fn test(&self, limit: u64) -> Yaml {
        let metadata = vec![
            ("format", text("Lava-Test Test Definition 1.0")),
            ("name", text("rtscope")),
            ("description", text(&self.name)),
        ];
        let steps = self.steps().iter().map(|step| text(step)).collect();
        let repository =
            vec![("metadata", map(metadata)), ("run", map(vec![("steps", Yaml::List(steps))]))];
        let definition = vec![
            ("from", text("inline")),
            ("name", text("rtscope")),
            ("path", text("inline/rtscope.yaml")),
            ("repository", map(repository)),
        ];
        map(vec![("timeout", minutes(limit)), ("definitions", Yaml::List(vec![map(definition)]))])
    }

    /// The lines of the test's shell, which ends at the first command that fails.
    fn steps(&self) -> Vec<String> {
        let address = shell_word(&self.program);
        let fetch = format!(
            "if command -v curl >/dev/null 2>&1; then curl -fsSL -o rtscope {address}; else wget -q -O rtscope {address}; fi || \
             lava-test-raise \"can't fetch rtscope\""
        );
        let mut steps = vec!["mkdir -p /tmp/rtscope && cd /tmp/rtscope".to_owned(), fetch];
        if let Some(sum) = &self.program_sha256 {
            steps.push(format!(
                "echo '{sum}  rtscope' | sha256sum -c - || lava-test-raise \"rtscope does not have the expected SHA-256\""
            ));
        }
        let plan = self.plan.trim_end();
        steps.extend([
            "chmod +x rtscope".to_owned(),
            format!("cat > plan.toml <<'{PLAN_MARK}'\n{plan}\n{PLAN_MARK}\n"),
            "rm -rf run; code=0; ./rtscope run plan.toml --out run || code=$?".to_owned(),
            "./rtscope export run --format lava || true".to_owned(),
            "case $code in 0) result=pass;; 2) result=fail;; 3) result=unknown;; *) lava-test-raise \
             \"rtscope could not measure (exit code $code)\";; esac"
                .to_owned(),
            "lava-test-case rtscope --result $result".to_owned(),
        ]);
        steps
    }
}

/// LAVA's word for how a file is packed, by its name.
fn packing(address: &str) -> Option<&'static str> {
    let packings = [(".gz", "gz"), (".xz", "xz"), (".bz2", "bz2"), (".zst", "zstd")];
    packings.into_iter().find(|(ending, _)| address.ends_with(ending)).map(|(_, packing)| packing)
}

/// The part of YAML that a job needs.
enum Yaml {
    Text(String),
    Number(u64),
    List(Vec<Yaml>),
    Map(Vec<(&'static str, Yaml)>),
}

fn text(text: &str) -> Yaml {
    Yaml::Text(text.to_owned())
}

fn map(fields: Vec<(&'static str, Yaml)>) -> Yaml {
    Yaml::Map(fields)
}

fn minutes(count: u64) -> Yaml {
    map(vec![("minutes", Yaml::Number(count))])
}

impl Yaml {
    /// Writes it behind a key or a dash. What has lines of its own begins on the next one.
    fn write_behind(&self, to: &mut String, indent: usize) {
        match self {
            Yaml::Number(number) => {
                let _ = writeln!(to, " {number}");
            }
            Yaml::Text(text) => write_text(text, to, indent),
            Yaml::List(_) | Yaml::Map(_) => {
                to.push('\n');
                self.write(to, indent);
            }
        }
    }

    fn write(&self, to: &mut String, indent: usize) {
        let margin = " ".repeat(indent);
        match self {
            Yaml::Map(fields) => {
                for (key, value) in fields {
                    let _ = write!(to, "{margin}{key}:");
                    value.write_behind(to, indent + 2);
                }
            }
            Yaml::List(entries) => {
                for entry in entries {
                    let _ = write!(to, "{margin}-");
                    match entry {
                        Yaml::Map(_) => {
                            let mut below = String::new();
                            entry.write(&mut below, indent + 2);
                            let _ = write!(to, " {}", below.trim_start());
                        }
                        other => other.write_behind(to, indent + 2),
                    }
                }
            }
            Yaml::Text(_) | Yaml::Number(_) => self.write_behind(to, indent),
        }
    }
}

/// Writes a text plain where nobody could take it for anything else, as lines where it has some, else in quotes.
fn write_text(text: &str, to: &mut String, indent: usize) {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._/-".contains(c);
    let begins = |c: char| c.is_ascii_alphabetic() || c == '/';
    let is_word = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"];
    let has_lines = text.contains('\n') && !text.starts_with([' ', '\n']);
    let is_printable = text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{feff}');
    if text.starts_with(begins)
        && text.chars().all(is_plain)
        && !is_word.contains(&text.to_lowercase().as_str())
    {
        let _ = writeln!(to, " {text}");
    } else if has_lines && is_printable {
        to.push_str(if text.ends_with('\n') { " |\n" } else { " |-\n" });
        for line in text.lines() {
            let margin = if line.is_empty() { 0 } else { indent };
            let _ = writeln!(to, "{}{line}", " ".repeat(margin));
        }
    } else {
        // JSON's quotes are YAML's, too.
        let _ = writeln!(to, " {}", serde_json::Value::from(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> LavaJob {
        LavaJob {
            name: "rtscope quick".to_owned(),
            device_type: "bcm2711-rpi-4-b".to_owned(),
            tags: vec!["rt".to_owned()],
            system: LavaSystem::Board {
                method: "u-boot".to_owned(),
                kernel: "https://files.example/Image".to_owned(),
                kernel_type: Some("image".to_owned()),
                dtb: Some("https://files.example/rpi.dtb".to_owned()),
                modules: Some("https://files.example/modules.tar.xz".to_owned()),
                ramdisk: None,
                nfsrootfs: Some("https://files.example/rootfs.tar.xz".to_owned()),
            },
            prompts: vec!["root@.*:".to_owned()],
            login: Some("root".to_owned()),
            program: "https://files.example/it's/rtscope".to_owned(),
            program_sha256: Some("0".repeat(64)),
            plan: "name = \"quick\"\n\n[[phase]]\nname = \"rest\"\n".to_owned(),
            plan_s: 60,
        }
    }

    #[test]
    fn a_board_s_job_has_the_plan_as_lines() {
        let yaml = job().to_yaml();
        for part in [
            "device_type: bcm2711-rpi-4-b\njob_name: \"rtscope quick\"\ntimeouts:\n  job:\n    minutes: 41\n",
            "tags:\n  - rt\nactions:\n  - deploy:\n      timeout:\n",
            "      kernel:\n        url: \"https://files.example/Image\"\n        type: image\n",
            "        url: \"https://files.example/rootfs.tar.xz\"\n        compression: xz\n",
            "      method: u-boot\n      commands: nfs\n",
            "          repository:\n            metadata:\n",
            "                  cat > plan.toml <<'RTSCOPE_PLAN_ENDS_HERE'\n                  name = \"quick\"\n\n                  [[phase]]\n",
            "'https://files.example/it'\\\\''s/rtscope'",
        ] {
            assert!(yaml.contains(part), "{part}\nis not in\n{yaml}");
        }
        assert!(!yaml.contains("context"), "{yaml}");
    }

    #[test]
    fn a_qemu_s_job_has_images() {
        let system = LavaSystem::Qemu {
            arch: "amd64".to_owned(),
            kernel: Some("https://files.example/bzImage".to_owned()),
            ramdisk: None,
            rootfs: Some("https://files.example/disk.ext4.gz".to_owned()),
            kernel_args: "console=ttyS0 root=/dev/vda".to_owned(),
        };
        let yaml = LavaJob { system, login: None, tags: Vec::new(), ..job() }.to_yaml();
        for part in [
            "context:\n  arch: amd64\n",
            "        kernel:\n          image_arg: \"-kernel {kernel} --append \\\"console=ttyS0 root=/dev/vda\\\"\"\n",
            "          url: \"https://files.example/disk.ext4.gz\"\n          compression: gz\n",
            "      method: qemu\n      media: tmpfs\n",
        ] {
            assert!(yaml.contains(part), "{part}\nis not in\n{yaml}");
        }
        assert!(!yaml.contains("auto_login"), "{yaml}");
    }

    #[test]
    fn a_text_that_could_be_something_else_is_in_quotes() {
        let written = |value: &str| {
            let mut to = String::new();
            write_text(value, &mut to, 2);
            to
        };
        assert_eq!(written("a-b.c/d"), " a-b.c/d\n");
        for quoted in ["yes", "12", "- a", "a: b", "", "a b", " x\ny", "a\u{7}\n", "#x"] {
            assert!(written(quoted).starts_with(" \""), "{quoted:?}: {}", written(quoted));
        }
        assert_eq!(written("a\nb"), " |-\n  a\n  b\n");
    }
}
