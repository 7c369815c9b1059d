//! Nix: a flake. It builds the checkout that it lies in, so it needs no checksum.

use super::{Description, HEAD};

pub(super) fn recipes(description: &Description) -> Vec<(String, String)> {
    vec![("nix/flake.nix".to_owned(), flake(description))]
}

/// Nix's name of a licence.
fn licence(spdx: &str) -> &str {
    match spdx {
        "Apache-2.0" => "asl20",
        "MIT" => "mit",
        other => other,
    }
}

fn flake(description: &Description) -> String {
    let licences: Vec<&str> = description.licences.iter().map(|one| licence(one)).collect();
    format!(
        "# {HEAD}
# In the root of a checkout: nix build '.?dir=packaging/nix'
{{
  description = \"{title}\";

  inputs.nixpkgs.url = \"nixpkgs/nixos-unstable\";

  outputs = {{ self, nixpkgs }}:
    let
      systems = [ \"x86_64-linux\" \"aarch64-linux\" \"armv7l-linux\" \"riscv64-linux\" ];
      forEach = nixpkgs.lib.genAttrs systems;
    in
    {{
      packages = forEach (system:
        let pkgs = nixpkgs.legacyPackages.${{system}};
        in
        {{
          # Needs Rust {rust} or newer.
          default = pkgs.rustPlatform.buildRustPackage {{
            pname = \"rtscope\";
            version = \"{version}\";
            src = ../..;
            cargoLock.lockFile = ../../Cargo.lock;
            cargoBuildFlags = [ \"--package\" \"rtscope\" ];
            # The lab copies the program into guests that have no libraries.
            env.RUSTFLAGS = \"-C target-feature=+crt-static\";
            env.LIBSQLITE3_FLAGS = \"{sqlite}\";
            buildInputs = [ pkgs.glibc.static ];
            nativeBuildInputs = [ pkgs.installShellFiles ];
            # The tests need root, QEMU and real-time threads.
            doCheck = false;
            postInstall = ''
              readelf --program-headers $out/bin/rtscope > headers
              if grep -q INTERP headers; then
                echo 'rtscope is not static'
                exit 1
              fi
              mkdir man
              $out/bin/rtscope man man
              installManPage man/*
              for shell in bash zsh fish; do
                $out/bin/rtscope completions $shell > rtscope.$shell
              done
              installShellCompletion rtscope.bash rtscope.fish --zsh --name _rtscope rtscope.zsh
            '';
            meta = {{
              description = \"{title}\";
              homepage = \"{homepage}\";
              license = with pkgs.lib.licenses; [ {licences} ];
              mainProgram = \"rtscope\";
              platforms = systems;
            }};
          }};
        }});
    }};
}}
",
        title = description.title(),
        rust = description.rust,
        version = description.version,
        homepage = description.homepage,
        sqlite = description.sqlite,
        licences = licences.join(" "),
    )
}
