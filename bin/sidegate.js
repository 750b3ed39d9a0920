#!/usr/bin/env node
// The launcher: plain JavaScript that any Node can read. It runs the gate on a Node that is new enough, its own or the bundled one.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { fileURLToPath } from 'node:url';

const OLDEST = 24;
const source = fileURLToPath(new URL('../src/cli/main.ts', import.meta.url));
const bundle = fileURLToPath(new URL('../dist/sidegate.mjs', import.meta.url));
const entry = existsSync(source) ? source : bundle;

if (Number(process.versions.node.split('.')[0]) >= OLDEST) await import(entry);
else runOnBundledNode();

function runOnBundledNode() {
  const node = findBundledNode();
  if (node === undefined) {
    console.error(
      `sidegate needs Node ${OLDEST} or newer; this is ${process.version}, and no newer one is installed beside it (npm ci installs one)`,
    );
    process.exit(1);
  }
  const child = spawn(node, [entry, ...process.argv.slice(2)], { stdio: 'inherit' });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP']) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => process.exit(code ?? 128 + (constants.signals[signal] ?? 0)));
}

function findBundledNode() {
  try {
    const require = createRequire(import.meta.url);
    const node = fileURLToPath(new URL('bin/node', `file://${require.resolve('node/package.json')}`));
    return existsSync(node) ? node : undefined;
  } catch {
    return undefined;
  }
}
