# Written by `cargo xtask packaging` from Cargo.toml, Cargo.lock, .cargo/config.toml and packaging/description.toml.
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
            env.RUSTFLAGS = "-C target-feature=+crt-static";
            env.LIBSQLITE3_FLAGS = "-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5 -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_ENABLE_API_ARMOR -USQLITE_ENABLE_LOAD_EXTENSION -USQLITE_ENABLE_COLUMN_METADATA -USQLITE_ENABLE_MEMORY_MANAGEMENT -DSQLITE_OMIT_JSON -DSQLITE_OMIT_DEPRECATED -DSQLITE_OMIT_SHARED_CACHE -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_UTF16 -DSQLITE_OMIT_DESERIALIZE -DSQLITE_OMIT_INTROSPECTION_PRAGMAS";
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
