//! Arch Linux: a PKGBUILD, and the `.SRCINFO` that its user repository reads instead of running it.

use super::{Description, HEAD};

/// The machines of Arch and of its ports that we have binaries for.
const MACHINES: [&str; 4] = ["x86_64", "aarch64", "armv7h", "riscv64"];

const BUILD_NEEDS: &str = "cargo";

/// What the lab needs.
const OPTIONAL: [&str; 2] = [
    "qemu-system-x86: compare kernels in an emulator",
    "qemu-system-arm: compare kernels for arm64 and armhf",
];

pub(super) fn recipes(description: &Description) -> Vec<(String, String)> {
    vec![
        ("arch/PKGBUILD".to_owned(), pkgbuild(description)),
        ("arch/.SRCINFO".to_owned(), srcinfo(description)),
    ]
}

/// Before the release there is nothing to compare with.
fn sum(description: &Description) -> &str {
    description.sha256.as_deref().unwrap_or("SKIP")
}

fn licence(description: &Description) -> String {
    description.licences.join(" OR ")
}

fn pkgbuild(description: &Description) -> String {
    let optional: Vec<String> = OPTIONAL.iter().map(|one| format!("'{one}'")).collect();
    format!(
        "# {HEAD}
# Maintainer: {maintainer}
pkgname=rtscope
pkgver={version}
pkgrel=1
pkgdesc='{title}'
arch=({machines})
url='{homepage}'
license=('{licence}')
makedepends=('{BUILD_NEEDS}')
optdepends=({optional})
# With LTO, the C compiler would write SQLite in a form that Rust's linker cannot read.
options=('!lto')
source=(\"$pkgname-$pkgver.tar.gz::{archive}\")
sha256sums=('{sum}')

prepare() {{
  cd \"$pkgname-$pkgver\"
  cargo fetch --locked
}}

build() {{
  cd \"$pkgname-$pkgver\"
  # makepkg's flags replace those of .cargo/config.toml. The lab needs a static program.
  export RUSTFLAGS=\"$RUSTFLAGS -C target-feature=+crt-static\"
  cargo build --frozen --release --package rtscope --target-dir target
  readelf --program-headers target/*/release/rtscope > headers
  if grep -q INTERP headers; then
    echo 'rtscope is not static'
    return 1
  fi
}}

package() {{
  cd \"$pkgname-$pkgver\"
  local program=(target/*/release/rtscope)
  install -Dm755 \"${{program[0]}}\" \"$pkgdir/usr/bin/rtscope\"
  install -d \"$pkgdir/usr/share/man/man1\"
  \"${{program[0]}}\" man \"$pkgdir/usr/share/man/man1\"
  \"${{program[0]}}\" completions bash |
    install -Dm644 /dev/stdin \"$pkgdir/usr/share/bash-completion/completions/rtscope\"
  \"${{program[0]}}\" completions zsh |
    install -Dm644 /dev/stdin \"$pkgdir/usr/share/zsh/site-functions/_rtscope\"
  \"${{program[0]}}\" completions fish |
    install -Dm644 /dev/stdin \"$pkgdir/usr/share/fish/vendor_completions.d/rtscope.fish\"
  install -Dm644 -t \"$pkgdir/usr/lib/systemd/system\" packaging/systemd/*
  install -Dm644 -t \"$pkgdir/usr/share/licenses/$pkgname\" LICENSE-MIT LICENSE-APACHE
}}
",
        maintainer = description.maintainer,
        version = description.version,
        title = description.title(),
        machines = MACHINES.map(|one| format!("'{one}'")).join(" "),
        homepage = description.homepage,
        licence = licence(description),
        optional = optional.join("\n            "),
        archive = description.archive("$pkgver"),
        sum = sum(description),
    )
}

fn srcinfo(description: &Description) -> String {
    let version = &description.version;
    let mut fields = vec![
        ("pkgdesc", description.title()),
        ("pkgver", version.clone()),
        ("pkgrel", "1".to_owned()),
        ("url", description.homepage.clone()),
    ];
    fields.extend(MACHINES.map(|one| ("arch", one.to_owned())));
    fields.push(("license", licence(description)));
    fields.push(("makedepends", BUILD_NEEDS.to_owned()));
    fields.extend(OPTIONAL.map(|one| ("optdepends", one.to_owned())));
    fields.push(("options", "!lto".to_owned()));
    let source = format!("rtscope-{version}.tar.gz::{}", description.archive(version));
    fields.push(("source", source));
    fields.push(("sha256sums", sum(description).to_owned()));
    let fields: String =
        fields.iter().map(|(name, value)| format!("\t{name} = {value}\n")).collect();
    format!("# {HEAD}\npkgbase = rtscope\n{fields}\npkgname = rtscope\n")
}
