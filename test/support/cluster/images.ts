/** Which command line stands for an image on this machine. */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { readImageFlags } from '../image-flags.ts';
import type { Kube } from './kube-request.ts';

const ROOT = resolve(import.meta.dirname, '..', '..', '..');
const BUNDLE = join(ROOT, 'dist', 'sidegate.cjs');

/** The process that a container's command, args and image ask for; `$(NAME)` is filled in as the kubelet does. */
export function toCommandLine(container: Kube, env: Readonly<Record<string, string>>): string[] {
  const expand = (text: string): string => expandVariables(text, env);
  const entry: string[] = container.command?.map(expand) ?? toEntrypoint(container.image);
  const [program = '', ...rest] = [...entry, ...((container.args ?? []) as string[]).map(expand)];
  return [program === 'node' ? process.execPath : program, ...rest];
}

/** `$$` is a `$`, so that `$$(NAME)` stays `$(NAME)`; what is not known stays as it is. */
export function expandVariables(text: string, env: Readonly<Record<string, string>>): string {
  return text.replace(/\$\$|\$\(([^)]+)\)/g, (whole, name) => (whole === '$$' ? '$' : (env[name] ?? whole)));
}

function toEntrypoint(image: string): string[] {
  const [, name] = /([^/:@]+)(?:[:@][^/]*)?$/.exec(image) ?? [];
  if (name === 'app') return [process.execPath, join(import.meta.dirname, 'app-image.ts')];
  if (name !== 'sidegate') throw new Error(`no program of this machine stands for the image ${image}`);
  if (!existsSync(BUNDLE)) throw new Error(`${BUNDLE} is missing: npm run build makes it`);
  return [process.execPath, ...readImageFlags(), BUNDLE];
}
