package fencepost.spark.kafka;

import fencepost.spark.kafka.ClientError.BadClientSetting;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.util.List;
import java.util.stream.Stream;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManager;
import javax.net.ssl.TrustManagerFactory;

/**
 * TLS with certificates and keys from PEM files and texts, as the other clients take them, and from Java's keystores.
 * Without authorities: Java's own.
 */
final class Tls {
    private static final char[] NO_PASSWORD = new char[0];

    private Tls() {}

    static Socket wrap(Socket plain, String host, ClientSettings settings) throws IOException {
        // The files are read for each connection, so a new certificate is used as soon as it is there.
        SSLSocket socket =
                (SSLSocket) context(settings).getSocketFactory().createSocket(plain, host, plain.getPort(), true);
        if (settings.checksHostName()) {
            SSLParameters parameters = socket.getSSLParameters();
            parameters.setEndpointIdentificationAlgorithm("HTTPS");
            socket.setSSLParameters(parameters);
        }
        socket.startHandshake();
        return socket;
    }

    private static SSLContext context(ClientSettings settings) {
        try {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(keys(settings), authorities(settings), null);
            return context;
        } catch (IOException | GeneralSecurityException | IllegalArgumentException e) {
            throw new BadClientSetting("a certificate cannot be read: " + e.getMessage()
                    + "\n\nhint: check the ssl.* settings, and that the executors have the files; a key that Java cannot read becomes one that it can with "
                    + "`openssl pkcs8 -topk8`, or set fencepost.plane=python");
        }
    }

    private static TrustManager[] authorities(ClientSettings settings) throws IOException, GeneralSecurityException {
        KeyStore store = trusted(settings);
        if (store == null) {
            return null;
        }
        TrustManagerFactory factory = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(store);
        return factory.getTrustManagers();
    }

    /** The certificates of the authorities; null if none are named. */
    private static KeyStore trusted(ClientSettings settings) throws IOException, GeneralSecurityException {
        KeyStore store = empty();
        String origin;
        if (settings.truststoreLocation() != null) {
            origin = settings.truststoreLocation();
            store = read(origin, settings.truststorePassword());
        } else if (settings.caPem() != null) {
            origin = "ssl.ca.pem";
            trust(store, settings.caPem());
        } else if (settings.caLocation() != null) {
            origin = settings.caLocation();
            for (Path file : files(Path.of(origin))) {
                trust(store, text(file));
            }
        } else {
            return null;
        }
        if (store.size() == 0) {
            throw new IOException("no certificate in " + origin);
        }
        return store;
    }

    private static List<Path> files(Path location) throws IOException {
        if (!Files.isDirectory(location)) {
            return List.of(location);
        }
        try (Stream<Path> files = Files.list(location)) {
            return files.filter(Files::isRegularFile).toList();
        }
    }

    private static void trust(KeyStore store, String pem) throws IOException, GeneralSecurityException {
        for (Certificate certificate : Pem.certificates(pem)) {
            store.setCertificateEntry("authority " + store.size(), certificate);
        }
    }

    private static KeyManager[] keys(ClientSettings settings) throws IOException, GeneralSecurityException {
        KeyStore store;
        char[] password = NO_PASSWORD;
        if (settings.keystoreLocation() != null) {
            store = read(settings.keystoreLocation(), settings.keystorePassword());
            password = characters(settings.keystorePassword());
        } else if (settings.certificatePem() != null) {
            // As in a file, one text may hold both.
            String key = settings.keyPem() == null ? settings.certificatePem() : settings.keyPem();
            store = holding(settings.certificatePem(), key, "ssl.key.pem", settings.keyPassword());
        } else if (settings.certificateLocation() != null) {
            Path certificate = Path.of(settings.certificateLocation());
            // As with OpenSSL, one file may hold both.
            Path key = settings.keyLocation() == null ? certificate : Path.of(settings.keyLocation());
            store = holding(text(certificate), text(key), key.toString(), settings.keyPassword());
        } else {
            return null;
        }
        KeyManagerFactory factory = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        factory.init(store, password);
        return factory.getKeyManagers();
    }

    private static KeyStore holding(String chain, String key, String origin, String password)
            throws IOException, GeneralSecurityException {
        KeyStore store = empty();
        Certificate[] certificates = Pem.certificates(chain).toArray(new Certificate[0]);
        store.setKeyEntry("key", Pem.privateKey(key, origin, password), NO_PASSWORD, certificates);
        return store;
    }

    /** A keystore of Java, of whatever type. */
    private static KeyStore read(String location, String password) throws IOException, GeneralSecurityException {
        try {
            return KeyStore.getInstance(new File(location), characters(password));
        } catch (IOException e) {
            throw new IOException(location + ": " + e.getMessage(), e);
        }
    }

    private static char[] characters(String password) {
        return password == null ? NO_PASSWORD : password.toCharArray();
    }

    private static String text(Path file) throws IOException {
        return Files.readString(file, StandardCharsets.ISO_8859_1);
    }

    private static KeyStore empty() throws IOException, GeneralSecurityException {
        KeyStore store = KeyStore.getInstance("PKCS12");
        store.load(null, null);
        return store;
    }
}
