/** `npm run docs`: writes the generated pages and tables, so that docs and code always agree. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { renderNodePage } from '../bench/node/page.ts';
import { renderScalePage } from '../bench/scale/page.ts';
import { renderSizingPage } from '../bench/sizing/page.ts';
import { renderLibrarySidecar, renderSettingTable } from '../chart/chart-library.ts';
import { renderValuesSchema, renderValuesYaml, renderValueTable } from '../chart/chart-pages.ts';
import { DASHBOARD_FILES } from '../chart/dashboards.ts';
import { renderBinding, renderMutatingPolicy } from '../chart/policy-page.ts';
import { renderSidecarPolicy } from '../chart/policy-sidecar.ts';
import { withBlocks } from './markdown.ts';
import { renderPromises } from './reliability-page.ts';
import { renderRecipes, renderSources } from './source-coverage-page.ts';
import {
  renderAnnotations,
  renderChecks,
  renderCommands,
  renderFixtureKeys,
  renderHosts,
  renderMeanings,
  renderPresetKeys,
  renderPresets,
  renderSenders,
  toConfigTables,
} from './tables.ts';

const ROOT = join(import.meta.dirname, '..');

/** Writers by page. */
export const PAGES: Readonly<Record<string, () => string>> = {
  'docs/cli.md': withBlocks('docs/cli.md', { options: renderCommands }),
  'docs/config.md': withBlocks('docs/config.md', toConfigTables(readFileSync(join(ROOT, 'docs/config.md'), 'utf8'))),
  'docs/how-to/air-gapped.md': withBlocks('docs/how-to/air-gapped.md', { hosts: renderHosts }),
  'docs/injection.md': withBlocks('docs/injection.md', { annotations: renderAnnotations }),
  'docs/kubernetes-cost.md': () => renderNodePage(),
  'docs/presets.md': withBlocks('docs/presets.md', { presets: renderPresets, 'preset keys': renderPresetKeys }),
  'docs/senders.md': withBlocks('docs/senders.md', { senders: renderSenders, meanings: renderMeanings }),
  'docs/source-coverage.md': withBlocks('docs/source-coverage.md', { sources: renderSources, recipes: renderRecipes }),
  'docs/probe.md': withBlocks('docs/probe.md', { checks: renderChecks }),
  'docs/reliability.md': withBlocks('docs/reliability.md', { promises: () => renderPromises() }),
  'docs/scale.md': () => renderScalePage(),
  'docs/sizing.md': () => renderSizingPage(),
  'docs/testing.md': withBlocks('docs/testing.md', { keys: renderFixtureKeys }),
  'chart/sidegate/templates/mutating-admission-policy.yaml': renderMutatingPolicy,
  'chart/sidegate/templates/mutating-admission-policy-binding.yaml': renderBinding,
  'chart/sidegate/templates/_sidecar.tpl': renderSidecarPolicy,
  'chart/sidegate/values.yaml': renderValuesYaml,
  'chart/sidegate/values.schema.json': renderValuesSchema,
  'chart/sidegate/README.md': withBlocks('chart/sidegate/README.md', { values: renderValueTable }),
  ...DASHBOARD_FILES,
  'chart/sidegate-lib/templates/_sidecar.tpl': renderLibrarySidecar,
  'chart/sidegate-lib/README.md': withBlocks('chart/sidegate-lib/README.md', { settings: renderSettingTable }),
};

if (import.meta.main)
  for (const [page, render] of Object.entries(PAGES)) {
    const [file, text] = [join(ROOT, page), render()];
    const isCurrent = readFileSync(file, { encoding: 'utf8', flag: 'a+' }) === text;
    writeFileSync(file, text);
    console.log(`${page} ${isCurrent ? 'is current' : 'written'}`);
  }
