/** Writes docs/config.md from the config's schema, so that the page cannot say anything else than the code; and the other pages that code writes. */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { DASHBOARD_FILES } from '../chart/dashboards.ts';
import { toJsonSchema } from '../src/config/json-schema.ts';
import { renderLibraryReadme, renderLibrarySidecar } from './chart-library.ts';
import { renderChartReadme, renderValuesSchema, renderValuesYaml } from './chart-pages.ts';
import { renderInjectionPage } from './injection-page.ts';
import { renderBinding, renderMutatingPolicy, renderSettingsPolicy } from './policy-page.ts';
import { renderSidecarPolicy } from './policy-sidecar.ts';
import { renderPresetsPage } from './presets-page.ts';
import { renderProbePage } from './probe-page.ts';
import { toRows, toTable } from './schema-rows.ts';
import { renderSendersPage } from './senders-page.ts';
import { renderTestingPage } from './testing-page.ts';

/** Writers by page. */
const PAGES: Readonly<Record<string, () => string>> = {
  'docs/config.md': renderConfigPage,
  'docs/injection.md': renderInjectionPage,
  'docs/presets.md': renderPresetsPage,
  'docs/senders.md': renderSendersPage,
  'docs/probe.md': renderProbePage,
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

One YAML file, \`sidegate run --config FILE\`. Unknown keys are errors. \`sidegate check\` shows every problem with its place;
\`sidegate schema\` prints the JSON Schema for editors. This page is written from the same schema (\`npm run docs\`).

Durations are a number and \`ms\`, \`s\`, \`m\`, \`h\` or \`d\`; sizes are bytes, or a number and \`k\`, \`M\`, \`G\`, \`Ki\`, \`Mi\` or \`Gi\`.
File paths count from the config file. A change of \`routes\` or \`identity\` takes effect without a restart (also on SIGHUP); a change of
anything else takes one, and is refused with the reason until then. Files with secrets, users and certificates are watched, too.

| key | value | default | meaning |
| --- | --- | --- | --- |
`;

/** The page as it should be. */
export function renderConfigPage(): string {
  return INTRO + toTable(toRows(toJsonSchema(), ''));
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
