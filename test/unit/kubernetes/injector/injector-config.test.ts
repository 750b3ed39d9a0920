import { describe, expect, test } from 'vitest';
import { formatProblem } from '../../../../src/core/problem.ts';
import { loadInjectorConfig, parseInjectorConfig } from '../../../../src/kubernetes/injector/injector-config.ts';

const problemsOf = (text: string): string[] => parseInjectorConfig('injector.yaml', text).problems.map(formatProblem);

describe("the injector's config", () => {
  test('needs only the image', () => {
    const { config } = parseInjectorConfig('injector.yaml', 'sidecar: { image: "registry.example/sidegate:1" }');
    expect(config?.sidecar).toEqual({
      image: 'registry.example/sidegate:1',
      imagePullPolicy: 'IfNotPresent',
      imagePullSecrets: [],
      allowedEnv: [],
      allowedMounts: [],
      allowedInitContainers: [],
      interception: { mode: 'service' },
      mode: 'auto',
      port: 8480,
      adminPort: 8481,
      movedPort: 8482,
      resources: { requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '192Mi' } },
      preStop: 5,
    });
    expect(config?.server).toBeUndefined();
  });

  test.each([
    ['allowedEnv', 'NODE_OPTIONS', 'changes the program of the sidecar'],
    ['allowedEnv', 'lower', 'expected the name of an environment variable'],
    ['allowedMounts', '/opt/sidegate', 'is a directory of the program'],
    ['allowedMounts', '/vault/../opt', 'expected an absolute path'],
  ])('allows no webhook to change the program of sidecars: %s %s', (key, value, message) => {
    const { problems } = parseInjectorConfig('injector.yaml', `sidecar: { image: a, ${key}: ["${value}"] }`);
    expect(problems.map((problem) => problem.message).join()).toContain(message);
  });

  test.each([
    ...['NODE_OPTIONS', 'NODE_PATH', 'NODE_EXTRA_CA_CERTS', 'NODE_TLS_REJECT_UNAUTHORIZED', 'NODE_USE_ENV_PROXY'],
    ...['LD_PRELOAD', 'LD_AUDIT', 'GLIBC_TUNABLES', 'GCONV_PATH', 'LOCPATH', 'MALLOC_ARENA_MAX', 'HOSTALIASES', 'RES_OPTIONS'],
    ...['OPENSSL_CONF', 'OPENSSL_MODULES', 'SSL_CERT_FILE', 'SSL_CERT_DIR', 'SSLKEYLOGFILE', 'UV_THREADPOOL_SIZE', 'ICU_DATA'],
    ...['BASH_ENV', 'ENV', 'BASHOPTS', 'SHELLOPTS', 'PATH', 'HOME', 'IFS', 'PS4', 'PROMPT_COMMAND', 'XDG_CONFIG_HOME'],
    ...['PYTHONPATH', 'PYTHONSTARTUP', 'PERL5OPT', 'RUBYOPT', 'JAVA_TOOL_OPTIONS', '_JAVA_OPTIONS', 'DOTNET_STARTUP_HOOKS'],
    ...['HTTP_PROXY', 'HTTPS_PROXY', 'ALL_PROXY', 'NO_PROXY', 'SIDEGATE_POD_IPS'],
  ])('allows no webhook to add the variable %s to sidecars', (name) => {
    const { problems } = parseInjectorConfig('injector.yaml', `sidecar: { image: a, allowedEnv: ["${name}"] }`);
    expect(problems.map(({ message }) => message).join()).toContain(`${name} changes the program of the sidecar`);
  });

  test.each(['AWS_REGION', 'GOOGLE_APPLICATION_CREDENTIALS', 'OTEL_SERVICE_NAME', 'POD_NAME', 'ENVIRONMENT', 'PATH_PREFIX'])(
    'allows a webhook to add the variable %s to sidecars',
    (name) => {
      expect(problemsOf(`sidecar: { image: a, allowedEnv: ["${name}"] }`)).toEqual([]);
    },
  );

  test('has the server settings of the chart', () => {
    const { config } = parseInjectorConfig(
      'injector.yaml',
      'sidecar: { image: a }\nserver:\n  certificate:\n    secret: { namespace: n, name: s }\n    webhook: w\n',
    );
    expect(config?.server).toMatchObject({
      address: { port: 10250 },
      adminAddress: { port: 8481 },
      certificate: { secret: { namespace: 'n', name: 's', checkInterval: 10_000 }, webhook: 'w' },
      perClient: { maxConnections: 512, connectionsPerSecond: 200, requestsPerSecond: 500, maxUploads: 64 },
      excludedNamespaces: [],
    });
  });

  test('reports errors with their positions and fixes', () => {
    expect(problemsOf('sidecar:\n  image: a b\n  intercepton: service\n')).toEqual([
      'injector.yaml:2:10: error sidecar.image: "a b" is invalid: expected an image reference without blanks, for example registry.example/sidegate:1.0.0',
      'injector.yaml:3:3: error sidecar.intercepton: unknown key "intercepton"\n  hint: did you mean "interception"?',
    ]);
    expect(problemsOf('sidecar:\n  image: a\n  resources: { limits: { memory: 100m } }\n')).toEqual([
      'injector.yaml:3:34: error sidecar.resources.limits.memory: "100m" is invalid: expected memory in Mi, Gi, M or G, for example 192Mi',
    ]);
    expect(problemsOf('sidecar:\n  image: a\n  port: 9\n  adminPort: 9\n')).toEqual([
      'injector.yaml:4:14: error sidecar.adminPort: 9 equals sidecar.port\n  hint: choose another port',
    ]);
    expect(problemsOf('sidecar:\n  image: a\n  movedPort: 8480\n')).toEqual([
      'injector.yaml:3:14: error sidecar.movedPort: 8480 is already a port of the sidecar\n  hint: choose another port',
    ]);
  });

  test('rejects ports that do not exist', () => {
    expect(problemsOf('sidecar:\n  image: a\n  port: 99999\n  adminPort: 0\n')).toEqual([
      'injector.yaml:3:9: error sidecar.port: port 99999 is above 65535',
      'injector.yaml:4:14: error sidecar.adminPort: port 0 is below 1',
    ]);
    expect(problemsOf('sidecar: { image: a, port: 8480.5 }')).toEqual([
      expect.stringMatching(/sidecar\.port: expected an integer/),
    ]);
  });

  test('rejects requests above the limits, including the default ones', () => {
    const withResources = (resources: string): string => `sidecar:\n  image: a\n  resources: ${resources}\n`;
    expect(problemsOf(withResources('{ requests: { memory: 512Mi } }'))).toEqual([
      'injector.yaml:3:36: error sidecar.resources.requests.memory: 512Mi is above sidecar.resources.limits.memory, which is 192Mi\n  hint: raise the limit, or lower the request',
    ]);
    expect(problemsOf(withResources('{ limits: { memory: 32Mi, cpu: 20m } }'))).toEqual([
      expect.stringMatching(/requests\.cpu: 50m is above sidecar\.resources\.limits\.cpu, which is 20m/),
      expect.stringMatching(/requests\.memory: 96Mi is above sidecar\.resources\.limits\.memory, which is 32Mi/),
    ]);
    expect(problemsOf(withResources('{ requests: { memory: 1Gi, cpu: "2" }, limits: { memory: 1024Mi, cpu: 2000m } }'))).toEqual(
      [],
    );
  });

  test('reports a missing file', async () => {
    const { problems } = await loadInjectorConfig('/nonexistent/injector.yaml');
    expect(problems.map(formatProblem)).toEqual(['/nonexistent/injector.yaml: error the file does not exist']);
  });
});
