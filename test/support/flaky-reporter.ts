/** Reports the tests that passed in their second run: of suites that a machine can disturb, whose tests run again once. */
import { appendFileSync, mkdirSync } from 'node:fs';
import type { Reporter, TestModule } from 'vitest/node';

/** Beside the reports of the suites. `scripts/ci-summary.ts` prints it. */
const FOLDER = '.cache/reports';

// biome-ignore lint/style/noDefaultExport: vitest loads the default export.
export default class FlakyReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[]): void {
    for (const file of modules)
      for (const test of file.children.allTests()) {
        if (test.diagnostic()?.flaky !== true) continue;
        const line = `== flaky: ${file.relativeModuleId} > ${test.fullName}`;
        console.log(line);
        mkdirSync(FOLDER, { recursive: true });
        appendFileSync(`${FOLDER}/flaky.txt`, `${line}\n`);
      }
  }
}
