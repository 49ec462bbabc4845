package fencepost.spark.kafka;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.InvalidKeySpecException;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.crypto.Cipher;
import javax.crypto.EncryptedPrivateKeyInfo;
import javax.crypto.SecretKeyFactory;
import javax.crypto.spec.PBEKeySpec;

/** Certificates and private keys in PEM. */
final class Pem {
    private static final Pattern BLOCK = Pattern.compile("-----BEGIN ([A-Z0-9 ]+)-----([^-]+)-----END \\1-----");
    /** In DER: the object identifier of RSA, and NULL as its parameter. */
    private static final byte[] RSA = {0x30, 0x0D, 6, 9, 0x2A, (byte) 0x86, 0x48, (byte) 0x86, (byte) 0xF7, 0x0D, 1, 1, 1, 5, 0};
    private static final byte[] VERSION_0 = {2, 1, 0};
    private static final int SEQUENCE = 0x30;
    private static final int OCTETS = 0x04;

    private record Block(String kind, String text) {
        byte[] bytes() throws IOException {
            if (text.contains(":")) {
                throw new IOException("a key that is encrypted in OpenSSL's old way");
            }
            return Base64.getMimeDecoder().decode(text);
        }
    }

    private Pem() {}

    static List<Certificate> certificates(String pem) throws IOException, GeneralSecurityException {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        List<Certificate> found = new ArrayList<>();
        for (Block block : blocks(pem)) {
            if (block.kind.endsWith("CERTIFICATE")) {
                found.add(factory.generateCertificate(new ByteArrayInputStream(block.bytes())));
            }
        }
        return found;
    }

    /** origin: of the text, for messages. */
    static PrivateKey privateKey(String pem, String origin, String password) throws IOException, GeneralSecurityException {
        for (Block block : blocks(pem)) {
            switch (block.kind) {
                case "PRIVATE KEY":
                    return key(block.bytes());
                case "RSA PRIVATE KEY":
                    return key(der(SEQUENCE, VERSION_0, RSA, der(OCTETS, block.bytes())));
                case "ENCRYPTED PRIVATE KEY":
                    return key(decrypted(block.bytes(), password == null ? "" : password));
                case "EC PRIVATE KEY":
                    throw new IOException("the key in " + origin + " is in a form that Java cannot read (EC PRIVATE KEY)");
                default:
            }
        }
        throw new IOException("no private key in " + origin);
    }

    private static PrivateKey key(byte[] pkcs8) throws GeneralSecurityException {
        InvalidKeySpecException problem = null;
        for (String algorithm : List.of("RSA", "EC", "EdDSA")) {
            try {
                return KeyFactory.getInstance(algorithm).generatePrivate(new PKCS8EncodedKeySpec(pkcs8));
            } catch (InvalidKeySpecException e) {
                problem = e;
            }
        }
        throw problem;
    }

    private static byte[] decrypted(byte[] bytes, String password) throws IOException, GeneralSecurityException {
        EncryptedPrivateKeyInfo info = new EncryptedPrivateKeyInfo(bytes);
        // For PBES2, OpenSSL's scheme, the parameters name the algorithm.
        String algorithm = info.getAlgName().equals("PBES2") ? info.getAlgParameters().toString() : info.getAlgName();
        Cipher cipher = Cipher.getInstance(algorithm);
        PBEKeySpec key = new PBEKeySpec(password.toCharArray());
        cipher.init(Cipher.DECRYPT_MODE, SecretKeyFactory.getInstance(algorithm).generateSecret(key), info.getAlgParameters());
        return info.getKeySpec(cipher).getEncoded();
    }

    /** A DER value: its tag, its length, its parts. */
    private static byte[] der(int tag, byte[]... parts) {
        ByteArrayOutputStream content = new ByteArrayOutputStream();
        for (byte[] part : parts) {
            content.writeBytes(part);
        }
        int size = content.size();
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.write(tag);
        if (size < 0x80) {
            out.write(size);
        } else {
            out.write(0x82); // No key is longer than 64 KiB.
            out.write(size >> 8);
            out.write(size);
        }
        out.writeBytes(content.toByteArray());
        return out.toByteArray();
    }

    private static List<Block> blocks(String pem) {
        Matcher found = BLOCK.matcher(pem);
        List<Block> blocks = new ArrayList<>();
        while (found.find()) {
            blocks.add(new Block(found.group(1), found.group(2)));
        }
        return blocks;
    }
}
