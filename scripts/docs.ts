/** Writes docs/config.md from the config's schema, and all other generated pages, so that docs and code always agree. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { renderNodePage } from '../bench/node/page.ts';
import { renderScalePage } from '../bench/scale/page.ts';
import { renderSizingPage } from '../bench/sizing/page.ts';
import { DASHBOARD_FILES } from '../chart/dashboards.ts';
import { CONFIG_RENAMINGS } from '../src/config/load/config-renamings.ts';
import type { Renaming } from '../src/config/load/renamings.ts';
import { toJsonSchema } from '../src/config/schema/json-schema.ts';
import { renderLibraryReadme, renderLibrarySidecar } from './chart-library.ts';
import { renderChartReadme, renderValuesSchema, renderValuesYaml } from './chart-pages.ts';
import { renderCliPage } from './cli-page.ts';
import { renderInjectionPage } from './injection-page.ts';
import { renderBinding, renderMutatingPolicy, renderSettingsPolicy } from './policy-page.ts';
import { renderSidecarPolicy } from './policy-sidecar.ts';
import { renderPresetsPage } from './presets-page.ts';
import { renderProbePage } from './probe-page.ts';
import { renderReliabilityPage } from './reliability-page.ts';
import { toRows, toTable } from './schema-rows.ts';
import { SENDER_PAGES } from './sender-pages.ts';
import { renderSendersPage } from './senders-page.ts';
import { renderSourceCoveragePage } from './source-coverage-page.ts';
import { renderTestingPage } from './testing-page.ts';

/** Writers by page. */
const PAGES: Readonly<Record<string, () => string>> = {
  'docs/cli.md': renderCliPage,
  'docs/config.md': renderConfigPage,
  'docs/injection.md': renderInjectionPage,
  'docs/kubernetes-cost.md': () => renderNodePage(),
  'docs/presets.md': renderPresetsPage,
  'docs/senders.md': renderSendersPage,
  'docs/source-coverage.md': renderSourceCoveragePage,
  ...SENDER_PAGES,
  'docs/probe.md': renderProbePage,
  'docs/reliability.md': () => renderReliabilityPage(),
  'docs/scale.md': () => renderScalePage(),
  'docs/sizing.md': () => renderSizingPage(),
  'docs/testing.md': renderTestingPage,
  'chart/sidegate/templates/mutating-admission-policy.yaml': renderMutatingPolicy,
  'chart/sidegate/templates/mutating-admission-policy-binding.yaml': () => renderBinding('Mutating'),
  'chart/sidegate/templates/settings-policy.yaml': renderSettingsPolicy,
  'chart/sidegate/templates/settings-policy-binding.yaml': () => renderBinding('Validating'),
  'chart/sidegate/templates/_sidecar.tpl': renderSidecarPolicy,
  'chart/sidegate/values.yaml': renderValuesYaml,
  'chart/sidegate/values.schema.json': renderValuesSchema,
  'chart/sidegate/README.md': renderChartReadme,
  ...DASHBOARD_FILES,
  'chart/sidegate-lib/templates/_sidecar.tpl': renderLibrarySidecar,
  'chart/sidegate-lib/README.md': renderLibraryReadme,
};

const INTRO = `# Configuration

The config is one YAML file: \`sidegate run --config FILE\`. \`sidegate check\` reports every problem with its line and column, and unknown keys
are errors. \`sidegate schema\` prints the JSON Schema for editors, from which this page is generated (\`npm run docs\`).

- **Durations** are a number with \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`.
- **Sizes** are bytes, or a number with \`k\`, \`M\`, \`G\`, \`Ki\`, \`Mi\` or \`Gi\`.
- **File paths** are relative to the config file, except that of \`provider.queue.sqlite\`, which is relative to the working directory.
- **Changes** of \`routes\` and \`identity\` take effect without a restart, and so do changes of files with secrets, users and certificates, and of
  \`endpoints\`, \`schedule\`, \`timeout\`, \`concurrency\`, \`token\` and \`rotationGrace\` of \`provider\`. A change of any other key needs a restart;
  until then sidegate refuses to reload and logs the reason.

| key | value | default | meaning |
| --- | --- | --- | --- |
`;

/** Renders the page. */
export function renderConfigPage(): string {
  return INTRO + toTable(toRows(toJsonSchema(), '')) + RENAMED + CONFIG_RENAMINGS.map(toRenamedRow).join('');
}

const RENAMED = `
## Renamed keys

The old names remain valid until the next major version. sidegate logs a warning for each one, and \`sidegate check\` shows its line.

| old | new |
| --- | --- |
`;

function toRenamedRow(renaming: Renaming): string {
  const path = renaming.at.join('.').replaceAll('.*', '[]');
  const [old, name] =
    renaming.kind === 'key'
      ? [renaming.old, renaming.name]
      : [renaming.old, renaming.name].map((value) => `${renaming.key}: ${value}`);
  return `| \`${path}.${old}\` | \`${path}.${name}\` |\n`;
}

if (import.meta.main) {
  for (const [page, render] of Object.entries(PAGES)) {
    const file = fileURLToPath(new URL(`../${page}`, import.meta.url));
    const text = render();
    const isCurrent = readFileSync(file, { encoding: 'utf8', flag: 'a+' }) === text;
    writeFileSync(file, text);
    console.log(`${page} ${isCurrent ? 'is current' : 'written'}`);
  }
}
