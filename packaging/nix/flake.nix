# Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock and packaging/description.toml.
# In the root of a checkout: nix build '.?dir=packaging/nix'
{
  description = "Measure whether Linux wakes a real-time thread in time";

  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" "armv7l-linux" "riscv64-linux" ];
      forEach = nixpkgs.lib.genAttrs systems;
    in
    {
      packages = forEach (system:
        let pkgs = nixpkgs.legacyPackages.${system};
        in
        {
          # Needs Rust 1.91 or newer.
          default = pkgs.rustPlatform.buildRustPackage {
            pname = "rtscope";
            version = "0.1.0";
            src = ../..;
            cargoLock.lockFile = ../../Cargo.lock;
            cargoBuildFlags = [ "--package" "rtscope" ];
            # The lab copies the program into guests that have no libraries.
            RUSTFLAGS = "-C target-feature=+crt-static";
            buildInputs = [ pkgs.glibc.static ];
            nativeBuildInputs = [ pkgs.installShellFiles ];
            # The tests need root, QEMU and real-time threads.
            doCheck = false;
            postInstall = ''
              mkdir man
              $out/bin/rtscope man man
              installManPage man/*
              for shell in bash zsh fish; do
                $out/bin/rtscope completions $shell > rtscope.$shell
              done
              installShellCompletion rtscope.bash rtscope.fish --zsh --name _rtscope rtscope.zsh
            '';
            meta = {
              description = "Measure whether Linux wakes a real-time thread in time";
              homepage = "https://example.org/rtscope";
              license = with pkgs.lib.licenses; [ mit asl20 ];
              mainProgram = "rtscope";
              platforms = systems;
            };
          };
        });
    };
}
