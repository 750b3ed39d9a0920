/** Loads a fixture file and the body files that it names; returns its tests, or all problems at once. */
import { dirname, resolve } from 'node:path';
import * as z from 'zod';
import { parseYaml, readText, type TextPosition, type YamlFile } from '../../config/load/document.ts';
import { toProblems } from '../../config/schema/issues.ts';
import { type JsonSchema, keepExamples } from '../../config/schema/json-schema.ts';
import { MAX_CONTENT_BYTES, readRegularFile, toUnread } from '../../config/sources/bounded-read.ts';
import type { FakeSources } from '../../config/sources/fake-sources.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { error, type LocatedProblem, type Path, type Problem } from '../../core/problem.ts';
import { FixturesSchema } from './fixtures-schema.ts';

type ParsedFixtures = z.output<typeof FixturesSchema>;
type ParsedStep = ParsedFixtures['tests'][number]['steps'][number];

/** A request and its expected result. */
export type FixtureStep = Omit<ParsedStep, 'request'> & {
  readonly name?: string | undefined;
  readonly request: Omit<ParsedStep['request'], 'body' | 'json' | 'bodyFile' | 'bodyBase64'> & {
    /** Undefined: no body, which differs from an empty body. */
    readonly content: Buffer | undefined;
    readonly isJson: boolean;
  };
  readonly position: TextPosition | undefined;
};
/** How to sign, and what to change afterwards. */
export type SignConfig = NonNullable<FixtureStep['sign']>;
/** How the app responds. */
export type AppConfig = NonNullable<FixtureStep['app']>;
/** One test. */
export interface FixtureTest {
  readonly name: string;
  readonly position: TextPosition | undefined;
  readonly startsAt: EpochMilliseconds;
  readonly steps: readonly FixtureStep[];
}

/** A valid fixture file. */
export interface Fixtures {
  readonly file: string;
  /** Absolute. */
  readonly config: string;
  readonly now: EpochMilliseconds;
  readonly fakeSources: FakeSources;
  readonly remote: ReadonlyMap<string, string>;
  readonly tests: readonly FixtureTest[];
  readonly locate: YamlFile['locate'];
}

/** The fixtures, or the problems. */
type FixturesRead = Fixtures | { readonly tests: undefined; readonly problems: readonly LocatedProblem[] };

/** JSON Schema draft-07, for editors. */
export function toFixturesJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(FixturesSchema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    override: keepExamples,
  });
  return { ...(schema as JsonSchema), title: 'sidegate fixtures' };
}

/** Loads and validates `file`; never throws because of its contents. */
export async function loadFixtures(file: string): Promise<FixturesRead> {
  const text = await readText(file);
  if (typeof text !== 'string') return { tests: undefined, problems: [text] };
  const read = parseYaml(file, text, 'start with config: and tests:');
  if ('problems' in read) return { tests: undefined, problems: read.problems };
  const parsed = FixturesSchema.safeParse(read.value, { reportInput: true });
  if (!parsed.success) {
    const problems = toProblems(parsed.error.issues, toFixturesJsonSchema()).map(read.locate);
    return {
      tests: undefined,
      problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0)),
    };
  }
  const problems: Problem[] = [];
  const contents = new Contents(dirname(resolve(file)), problems);
  const { config, now, secrets, remote, tests } = parsed.data;
  const found: FixtureTest[] = [];
  for (const [index, test] of tests.entries()) {
    const path = ['tests', index];
    problems.push(...checkOrder(test, path));
    const steps: FixtureStep[] = [];
    for (const [position, step] of test.steps.entries()) {
      const at = test.hasSteps ? [...path, 'steps', position] : path;
      steps.push({ ...step, request: await contents.fill(step.request, [...at, 'request']), position: read.toPosition(at) });
    }
    found.push({ name: test.name, position: read.toPosition(path), startsAt: test.now ?? now, steps });
  }
  if (problems.length > 0) return { tests: undefined, problems: problems.map(read.locate) };
  const target = resolve(dirname(file), config);
  const files = Object.entries(secrets.files).map(([name, secret]) => [resolve(dirname(target), name), secret] as const);
  const fakeSources = { env: new Map(Object.entries(secrets.env)), files: new Map(files) };
  return { file, config: target, now, fakeSources, remote: new Map(Object.entries(remote)), tests: found, locate: read.locate };
}

/** Reports steps that start before the previous step. */
function checkOrder({ steps }: ParsedFixtures['tests'][number], path: Path): Problem[] {
  let latest = 0;
  return steps.flatMap(({ at }, index) => {
    const isEarlier = at !== undefined && at < latest;
    latest = Math.max(latest, at ?? 0);
    return isEarlier
      ? [
          error(
            [...path, 'steps', index, 'at'],
            'this is before the previous step',
            '`at` is relative to `now`, not to the previous step',
          ),
        ]
      : [];
  });
}

class Contents {
  readonly #folder: string;
  readonly #problems: Problem[];

  constructor(folder: string, problems: Problem[]) {
    this.#folder = folder;
    this.#problems = problems;
  }

  async fill(request: ParsedStep['request'], path: Path): Promise<FixtureStep['request']> {
    const { body, json, bodyFile, bodyBase64, ...rest } = request;
    if (bodyFile !== undefined) return { ...rest, isJson: false, content: await this.#read(bodyFile, [...path, 'bodyFile']) };
    if (json !== undefined) return { ...rest, isJson: true, content: Buffer.from(JSON.stringify(json)) };
    const content = bodyBase64 === undefined ? body && Buffer.from(body) : Buffer.from(bodyBase64, 'base64');
    return { ...rest, isJson: false, content: content === '' ? Buffer.alloc(0) : content };
  }

  async #read(name: string, path: Path): Promise<Buffer | undefined> {
    try {
      return await readRegularFile(resolve(this.#folder, name), MAX_CONTENT_BYTES);
    } catch (thrown) {
      this.#problems.push(error(path, toUnread(name, thrown).problem));
      return undefined;
    }
  }
}
