import { spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { CONTROLS } from '../support/cli.ts';
import { useFolder } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';
import { runOnTerminal } from '../support/terminal.ts';

const folder = useFolder();
const config = join(folder, 'gate.yaml');
beforeAll(() => {
  writeFileSync(
    config,
    'routes: [{ name: a, match: { path: /a }, upstream: "http://127.0.0.1:3000", allow: anyone, mode: observe }]\n',
  );
  // A command named sidegate, as users have it.
  writeFileSync(join(folder, 'sidegate'), `#!/bin/sh\nexec '${process.execPath}' '${LAUNCHER}' "$@"\n`, { mode: 0o755 });
});

const env = { ...process.env, PATH: `${folder}:${process.env['PATH']}`, TERM: 'xterm' };
const hasShell = (name: string): boolean => (process.env['PATH'] ?? '').split(':').some((path) => existsSync(join(path, name)));

describe('on a terminal', () => {
  const show = (more: Readonly<Record<string, string>>): string => {
    const { NO_COLOR: _, ...rest } = env as Readonly<Record<string, string>>;
    return runOnTerminal(['sidegate', 'check', config], { env: { ...rest, ...more } }).stdout;
  };

  test('shows severities and the outcome in colour', () => {
    const text = show({});
    expect(text).toContain(': \u001b[33mwarning\u001b[0m routes.0.mode: ');
    expect(text).toContain(`${config}: \u001b[32mok, 1 warning\u001b[0m`);
  });

  test.each([{ NO_COLOR: '1' }, { TERM: 'dumb' }])('shows no colour with %j', (more) => {
    const text = show(more);
    expect(text).toContain(': warning routes.0.mode: ');
    expect(text).not.toContain('\u001b');
  });
});

const HOSTILE = '\u001b]0;owned\u0007\u009b31m\u202e';
test('what the input contains is shown without what a terminal would run', () => {
  const name = `/none/${HOSTILE}`;
  const entry = {
    request: { method: 'POST', url: `https://x${HOSTILE}/`, headers: [] },
    _sidegate: { body: 'complete', notes: [`${HOSTILE}\nresult: valid`] },
  };
  const [har, two, pods] = ['one.har', 'two.har', 'pods.yaml'].map((file) => join(folder, file)) as [string, string, string];
  writeFileSync(har, JSON.stringify({ log: { entries: [entry] } }));
  writeFileSync(two, JSON.stringify({ log: { entries: [entry, entry] } }));
  writeFileSync(pods, JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name: HOSTILE }, spec: { containers: [] } }));
  const explain = (file: string, ...more: string[]): string[] => [
    'explain',
    file,
    '--scheme',
    'github',
    '--secret-env',
    'HOME',
    ...more,
  ];
  const each = [['check', name], ['run', '-c', name], ['sign', '--scheme', name], [name]];
  for (const args of [
    ...each,
    explain(name),
    explain(har),
    explain(har, '--format', 'json'),
    explain(two),
    ['inject', '-f', pods],
  ]) {
    const { stderr, stdout } = spawnSync('sidegate', args, { encoding: 'utf8', env });
    expect([args, stderr + stdout]).toEqual([args, expect.stringContaining('\\u001b]0;owned\\u0007')]);
    expect(stderr + stdout).not.toMatch(CONTROLS);
    expect(stdout).not.toMatch(/^result: valid/m);
  }
}, 60_000);

describe('sidegate completion', () => {
  const complete = (...words: string[]): string[] => {
    const line = `source <(sidegate completion bash); COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sidegate; printf '%s\\n' "\${COMPREPLY[@]}"`;
    return spawnSync('bash', ['-c', line, 'bash', ...words], { encoding: 'utf8', env })
      .stdout.trim()
      .split('\n');
  };

  test('completes commands, options and values in bash', () => {
    expect(complete('sidegate', 'ch')).toEqual(['check']);
    expect(complete('sidegate', 'in')).toEqual(['init', 'inject', 'inject-server']);
    expect(complete('sidegate', 'init', '--deploy', 'c')).toEqual(['compose']);
    expect(complete('sidegate', 'init', '--sender', 'str')).toEqual(['stripe']);
    expect(complete('sidegate', 'check', '--fo')).toEqual(['--format']);
    expect(complete('sidegate', 'check', '--format', '')).toEqual(['text', 'json']);
    expect(complete('sidegate', 'sign', '--scheme', 'git')).toEqual(['gitea', 'github', 'gitlab']);
    expect(complete('sidegate', 'doctor', '--fail-on', 'w')).toEqual(['warning']);
    // Deprecated spellings are not offered, and nothing stands in the way of file names.
    expect(complete('sidegate', 'check', '--js')).toEqual(['']);
    expect(complete('sidegate', 'check', 'gate')).toEqual(['']);
    // Each completion starts a process.
  }, 60_000);

  test('completes the commands of a group, and their options and values', () => {
    expect(complete('sidegate', 'deliveries', '')).toEqual(['list', 'show', 'retry', 'cancel', 'purge', 'recover']);
    expect(complete('sidegate', 'deliveries', 'retry', '--state', 'd')).toEqual(['delivered', 'dead']);
    expect(complete('sidegate', 'endpoints', 'create', '--ur')).toEqual(['--url']);
  }, 60_000);

  test.skipIf(!hasShell('fish'))(
    'completes commands, options and values in fish',
    () => {
      const ask = (line: string): string[] => {
        const script = `sidegate completion fish | source; complete -C '${line}'`;
        const { stdout } = spawnSync('fish', ['--no-config', '-c', script], { encoding: 'utf8', env: { ...env, HOME: folder } });
        return stdout
          .trim()
          .split('\n')
          .map((found) => found.split('\t')[0] ?? '');
      };
      expect(ask('sidegate chec')).toEqual(['check']);
      expect(ask('sidegate check --form')).toEqual(['--format']);
      expect(ask('sidegate check --format ')).toEqual(['json', 'text']);
    },
    60_000,
  );

  test.skipIf(!hasShell('zsh'))('is sound in zsh, which then has a completer for sidegate', () => {
    const line = 'autoload -U compinit; compinit -u -D; source <(sidegate completion zsh); print $_comps[sidegate]';
    const { stdout, stderr } = spawnSync('zsh', ['-f', '-c', line], { encoding: 'utf8', env });
    expect([stdout, stderr]).toEqual(['_sidegate\n', '']);
  });

  test('is a usage error for other shells', () => {
    expect(spawnSync('sidegate', ['completion', 'tcsh'], { encoding: 'utf8', env })).toMatchObject({
      status: 2,
      stderr: 'sidegate: unknown shell tcsh; use one of bash, zsh, fish\n',
    });
  });
});
