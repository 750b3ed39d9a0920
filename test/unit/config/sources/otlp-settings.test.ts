import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { parseConfig } from '../../../../src/config/load/load.ts';
import type { TracingConfig } from '../../../../src/config/schema/config.ts';
import { type OtlpRead, readOtelEnv, readOtlpSettings } from '../../../../src/config/sources/otlp-settings.ts';
import { systemClock } from '../../../../src/core/clock.ts';
import { makeFolder } from '../../../support/fixtures.ts';

const ROUTES = [{ name: 'a', match: { path: '/' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' }];

function toConfig(tracing: object): TracingConfig {
  const { config, problems } = parseConfig('gate.yaml', stringify({ tracing, routes: ROUTES }), systemClock);
  if (config?.tracing === undefined) throw new Error(JSON.stringify(problems));
  return config.tracing;
}

function read(tracing: object, env: Readonly<Record<string, string>> = {}): Promise<OtlpRead> {
  return readOtlpSettings(toConfig(tracing), readOtelEnv(env));
}

describe('where spans are sent', () => {
  test.each([
    ['the config’s URL, which is a collector', { url: 'http://c:4318' }, {}, 'http://c:4318/v1/traces'],
    ['the config’s URL with a path', { url: 'https://c/otlp/traces' }, {}, 'https://c/otlp/traces'],
    [
      'the config’s URL before the environment’s',
      { url: 'http://c' },
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e' },
      'http://c/v1/traces',
    ],
    ['the environment’s', {}, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e:4318' }, 'http://e:4318/v1/traces'],
    ['the environment’s with a path', {}, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e/base/' }, 'http://e/base/v1/traces'],
    [
      'the environment’s own for traces, as it is',
      {},
      { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: 'http://t/here', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e' },
      'http://t/here',
    ],
    [
      'what is not empty',
      {},
      { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: '', OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e' },
      'http://e/v1/traces',
    ],
  ])('is %s', async (_, otlp, env, expected) => {
    const { settings, problems } = await read({ otlp }, env);
    expect(problems).toEqual([]);
    expect(settings?.url.href).toBe(expected);
  });

  test('is undefined unless the config enables it, whatever the environment says', async () => {
    expect(await read({}, { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e' })).toEqual({ problems: [] });
  });

  test('is undefined if OpenTelemetry is disabled', async () => {
    expect(await read({ otlp: { url: 'http://c' } }, { OTEL_SDK_DISABLED: 'TRUE' })).toEqual({ problems: [] });
  });

  test.each([
    ['nothing sets it', {}, 'no collector is configured'],
    ['it is no URL', { OTEL_EXPORTER_OTLP_ENDPOINT: 'collector' }, 'OTEL_EXPORTER_OTLP_ENDPOINT is malformed'],
    ['it has a password', { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://a:hunter2@e' }, 'OTEL_EXPORTER_OTLP_ENDPOINT is malformed'],
    [
      'it is for grpc',
      { OTEL_EXPORTER_OTLP_ENDPOINT: 'http://e:4317', OTEL_EXPORTER_OTLP_PROTOCOL: 'grpc' },
      'selects OTLP over gRPC for OTEL_EXPORTER_OTLP_ENDPOINT',
    ],
  ])('is a problem if %s', async (_, env, message) => {
    const { settings, problems } = await read({ otlp: {} }, env);
    expect(settings).toBeUndefined();
    expect(problems[0]?.message).toContain(message);
    expect(problems[0]?.hint).not.toBe('');
    expect(JSON.stringify(problems)).not.toContain('hunter2');
  });

  test('is rejected in the config if it contains a password', () => {
    const text = stringify({ tracing: { otlp: { url: 'http://a:hunter2@c' } }, routes: ROUTES });
    const { config, problems } = parseConfig('gate.yaml', text, systemClock);
    expect(config).toBeUndefined();
    expect(problems[0]).toMatchObject({ path: 'tracing.otlp.url', message: expect.stringContaining('use headers') });
    expect(JSON.stringify(problems)).not.toContain('hunter2');
  });
});

describe('headers', () => {
  test('come from the environment, percent-decoded', async () => {
    const env = { OTEL_EXPORTER_OTLP_HEADERS: 'Authorization=Basic%20QWxh=, x-tenant = a%2Cb ,' };
    const { settings } = await read({ otlp: { url: 'http://c' } }, env);
    expect(await settings?.readHeaders()).toEqual([
      ['Authorization', 'Basic QWxh='],
      ['x-tenant', 'a,b'],
    ]);
  });

  test('are read each time from the files that the config names', async () => {
    const file = join(makeFolder(), 'token');
    writeFileSync(file, 'Bearer one\n');
    const env = { OTEL_EXPORTER_OTLP_HEADERS: 'x=1' };
    const { settings } = await read({ otlp: { url: 'http://c', headers: { Authorization: { file } } } }, env);
    expect(await settings?.readHeaders()).toEqual([['Authorization', 'Bearer one']]);
    writeFileSync(file, 'Bearer two\n');
    expect(await settings?.readHeaders()).toEqual([['Authorization', 'Bearer two']]);
    rmSync(file);
    await expect(settings?.readHeaders()).rejects.toThrow('Authorization: ');
  });

  test.each([
    [
      'that the environment writes in another way',
      { OTEL_EXPORTER_OTLP_HEADERS: 'hunter2' },
      'OTEL_EXPORTER_OTLP_HEADERS is malformed',
    ],
    ['with a broken escape', { OTEL_EXPORTER_OTLP_HEADERS: 'a=hunter2%' }, 'OTEL_EXPORTER_OTLP_HEADERS is malformed'],
    ['with a line end in it', { OTEL_EXPORTER_OTLP_HEADERS: 'a=hunter2%0d%0ab' }, 'a: the value is not allowed in a header'],
    ['whose name is none', { OTEL_EXPORTER_OTLP_HEADERS: 'a b=hunter2' }, '"a b" is not a header name'],
  ])('%s are a problem that shows no value', async (_, env, message) => {
    const { settings, problems } = await read({ otlp: { url: 'http://c' } }, env);
    expect(settings).toBeUndefined();
    expect(problems[0]?.message).toContain(message);
    expect(JSON.stringify(problems)).not.toContain('hunter2');
  });
});

describe('the resource', () => {
  test.each([
    ['sidegate by default', {}, {}, { 'service.name': 'sidegate' }],
    [
      'the environment’s',
      {},
      { OTEL_RESOURCE_ATTRIBUTES: 'service.name=r,k8s.pod.name=p%201' },
      { 'service.name': 'r', 'k8s.pod.name': 'p 1' },
    ],
    [
      'the service’s own variable before the list',
      {},
      { OTEL_SERVICE_NAME: 's', OTEL_RESOURCE_ATTRIBUTES: 'service.name=r' },
      { 'service.name': 's' },
    ],
    [
      'the config’s before all',
      { serviceName: 'c', resource: { a: '1' } },
      { OTEL_SERVICE_NAME: 's', OTEL_RESOURCE_ATTRIBUTES: 'a=2,b=3' },
      { 'service.name': 'c', a: '1', b: '3' },
    ],
  ])('is %s', async (_, more, env, expected) => {
    const { settings } = await read({ otlp: { url: 'http://c' }, ...more }, env);
    expect(settings?.resource).toEqual(expected);
  });
});

test.each([
  ['cannot be read', '/nowhere/ca.pem', 'does not exist'],
  ['are none', import.meta.filename, 'contains no certificate'],
])('CAs that %s are a problem', async (_title, caFile, problem) => {
  const { problems } = await read({ otlp: { url: 'https://c', caFile } });
  expect(problems).toEqual([expect.objectContaining({ path: ['tracing', 'otlp', 'caFile'], message: `${caFile} ${problem}` })]);
});
