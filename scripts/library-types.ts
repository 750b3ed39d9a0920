/** Renders dist/verify.d.ts: the types of the library in one file that names no type of Node, for scripts/build.ts. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
/** Where the types are declared; no two have the same name. */
const SOURCES = [
  'library/verifier',
  'library/settings',
  'library/types',
  'verify/schemes/description',
  'verify/schemes/key-description',
  'core/clock',
];
const STATEMENT = /^(?=\/\*\*|export |import |declare )/m;
const TYPE = /^export (?:interface|type) (\w+)/;
const PUBLIC_VALUE = /^export declare (?:function (?:createVerifier|memoryStore)|class VerifierError)\b/;

/** The text of the file: the public functions, and the types that they need. */
export function renderLibraryTypes(): string {
  const statements = emit().flatMap(toStatements);
  const types = new Map(statements.flatMap((text) => findName(text).map((name) => [name, text] as const)));
  const needed = new Set(statements.filter((text) => PUBLIC_VALUE.test(withoutComment(text))));
  for (const text of needed)
    for (const [name] of text.matchAll(/\b[A-Z]\w+/g)) {
      const type = types.get(name);
      if (type !== undefined) needed.add(type);
    }
  return ['/** Types of `@sidegate/sidegate/verify`. */\n', ...needed].join('');
}

function emit(): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-types-'));
  try {
    const compilerOptions = {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      rootDir: join(ROOT, 'src'),
      outDir: folder,
      typeRoots: [join(ROOT, 'node_modules', '@types')],
    };
    const files = [join(ROOT, 'src', 'library', 'verifier.ts')];
    const config = { extends: join(ROOT, 'tsconfig.json'), compilerOptions, files, include: [] };
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify(config));
    execFileSync(join(ROOT, 'node_modules', '.bin', 'tsc'), ['--project', folder], { encoding: 'utf8' });
    return SOURCES.map((source) => readFileSync(join(folder, `${source}.d.ts`), 'utf8'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** The statements with their comments. */
function toStatements(text: string): string[] {
  const found: string[] = [];
  let comment = '';
  for (const part of text.split(STATEMENT)) {
    if (part.startsWith('/**')) comment = part;
    else {
      found.push(comment + part);
      comment = '';
    }
  }
  return found;
}

function withoutComment(text: string): string {
  return text.replace(/^\/\*\*[^]*?\*\/\n/, '');
}

const findName = (text: string): string[] => TYPE.exec(withoutComment(text))?.slice(1, 2) ?? [];
